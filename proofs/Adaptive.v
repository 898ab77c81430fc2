(* Theorem D (docs/mathematics/privacy.md): correlated Gaussian noise hides a record from whoever
   sees enough for every model to follow, although gradients answer to all that was seen.

   What is seen of step t is a function of what was seen before, whatever the losses, plus noise
   sum_s K_ts z_s, plus with the record sum_s D_ts a_s, where a_s, the record's part of step s, is a
   function of what was seen before s too. K = D V is what makes noise hide it: V is D whitened.

   Proved here, from nothing: there is a shift of the noise, known at every step before the noise of
   the step is drawn, under which the world without the record looks as that with it, step by step
   ([coupling]), and its energy is at most the squared sensitivity ([energy]), whatever answers do.
   For messages under noise C^-1 z over steps and R over nodes this is [R^-1]_qq times the squared
   sensitivity of C ([all_messages]), at most the sum of |C^T C| over the record's steps
   ([sum_of_gram]).
   Not proved here, but a hypothesis by name: a shift of energy at most mu^2 that is known before the
   noise is drawn is mu-GDP (lemma 1), and so is every function of both ([gdp_of_shift]). Laws are
   those of measurable functions, as on paper. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Squares.
Variable R : realFieldType.

(* The squared length of a vector; of a matrix, of all its entries. *)
Definition sq m n (A : 'M[R]_(m, n)) : R := \sum_i \sum_j A i j ^+ 2.

Lemma sq_ge0 m n (A : 'M[R]_(m, n)) : 0 <= sq A.
Proof. by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; apply: sqr_ge0. Qed.

Lemma sq_outer m d (w : 'cV[R]_m) (a : 'rV[R]_d) : sq (w *m a) = sq w * sq a.
Proof.
rewrite /sq big_distrl; apply: eq_bigr => i _ /=.
rewrite big_ord1 big_ord1 mulr_sumr; apply: eq_bigr => j _.
by rewrite mxE big_ord1 exprMn.
Qed.
End Squares.

Section Runs.
Variables (R : realFieldType) (m r d : nat).

(* Noise of each step: r independent standard normal draws for each of d coordinates. *)
Definition draws := nat -> 'M[R]_(r, d).
Definition shifted (z u : draws) : draws := fun t => z t + u t.

(* A shift that is known at every step before the noise of the step is drawn. *)
Definition predictable (u : draws -> draws) := forall z z' t,
  (forall s, (s < t)%N -> z s = z' s) -> u z t = u z' t.

(* What was seen, one matrix a step. *)
Definition history := seq 'M[R]_(m, d).

Section Run.
Variables (known : history -> 'M[R]_(m, d)) (part : history -> 'rV[R]_d).
Variables (K : nat -> nat -> 'M[R]_(m, r)) (D : nat -> nat -> 'cV[R]_m).

(* The record's part of step s comes from what was seen before it, the first s entries. *)
Fixpoint view (record : bool) (z : draws) (t : nat) : history :=
  if t is s.+1 then let h := view record z s in
    rcons h (known h + \sum_(k < s.+1) K s k *m z k
             + \sum_(k < s.+1) if record then D s k *m part (take k h) else 0)
  else [::].

Lemma size_view record z t : size (view record z t) = t.
Proof. by elim: t => //= t IH; rewrite size_rcons IH. Qed.

Lemma view_local record z z' t : (forall s, (s < t)%N -> z s = z' s) ->
  view record z t = view record z' t.
Proof.
elim: t => //= t IH same; rewrite IH => [|s st]; last by apply: same; apply: ltnW.
by congr (rcons _ (_ + _ + _)); apply: eq_bigr => k _; rewrite same.
Qed.

Lemma take_view record z k t : (k <= t)%N -> take k (view record z t) = view record z k.
Proof.
elim: t => [|t IH]; first by rewrite leqn0 => /eqP ->.
rewrite leq_eqVlt => /predU1P[-> | kt]; first by rewrite -{1}(size_view record z t.+1) take_size.
by rewrite /= -cats1 takel_cat ?size_view // IH.
Qed.

(* The record's parts, as they come out in the world with it. *)
Definition parts z s : 'rV[R]_d := part (view true z s).

Variable V : nat -> nat -> 'cV[R]_r.
Hypothesis causal : forall t s, (t < s)%N -> V t s = 0.
Hypothesis whitened : forall t s, (s <= t)%N -> \sum_(k < t.+1) K t k *m V k s = D t s.

Definition shift (z : draws) : draws := fun t => \sum_(s < t.+1) V t s *m parts z s.

Lemma shift_predictable : predictable shift.
Proof.
move=> z z' t same; apply: eq_bigr => s _; rewrite /parts.
by rewrite (@view_local true z z') // => k ks; apply: same; apply: leq_trans ks _; rewrite -ltnS.
Qed.

Theorem coupling z t : view false (shifted z (shift z)) t = view true z t.
Proof.
elim: t => //= t ->; congr (rcons _ _); rewrite -!addrA; congr (_ + _).
rewrite [X in _ + X]big1 ?addr0 //.
rewrite (eq_bigr (fun k : 'I_t.+1 => K t k *m z k + K t k *m shift z k)); last first.
  by move=> k _; rewrite mulmxDr.
rewrite big_split; congr (_ + _) => /=.
pose F k s := K t k *m (V k s *m parts z s).
transitivity (\sum_(k < t.+1) \sum_(s < t.+1) F k s).
  apply: eq_bigr => k _; rewrite mulmx_sumr (big_ord_widen t.+1 (F k)) ?ltn_ord //.
  rewrite big_mkcond; apply: eq_bigr => s _; case: ifP => // /negbT; rewrite -leqNgt => ks.
  by rewrite /F causal // mul0mx mulmx0.
rewrite exchange_big; apply: eq_bigr => s _ /=; rewrite take_view ?leq_ord // -whitened ?leq_ord //.
by rewrite mulmx_suml; apply: eq_bigr => k _; rewrite /F mulmxA.
Qed.

(* pi has the steps of the record; mu2 is the squared sensitivity of V over T steps. *)
Variables (T : nat) (pi : pred nat) (mu2 : R).
Definition sensitivity_le := forall a : nat -> 'rV[R]_d, (forall s, sq (a s) <= (pi s)%:R) ->
  \sum_(t < T) sq (\sum_(s < t.+1) V t s *m a s) <= mu2.

Theorem energy z : (forall h, sq (part h) <= (pi (size h))%:R) -> sensitivity_le ->
  \sum_(t < T) sq (shift z t) <= mu2.
Proof. by move=> clipped; apply=> s; rewrite -{2}(size_view true z s); apply: clipped. Qed.
End Run.

(* Lemma 1 and post-processing, the facts about normal laws. [gdp mu2 f g]: f and g of standard normal
   draws are mu-GDP in both directions, mu^2 = mu2. *)
Section Gaussian.
Variables (T : nat) (gdp : forall S : Type, R -> (draws -> S) -> (draws -> S) -> Prop).
Definition gdp_of_shift := forall (S : Type) mu2 (u : draws -> draws) (f g : draws -> S),
  (forall z z', (forall t, (t < T)%N -> z t = z' t) -> f z = f z') ->
  predictable u -> (forall z, \sum_(t < T) sq (u z t) <= mu2) ->
  (forall z, f (shifted z (u z)) = g z) -> gdp mu2 f g.

Theorem adaptive_gdp (known : history -> 'M[R]_(m, d)) (part : history -> 'rV[R]_d)
    (K : nat -> nat -> 'M[R]_(m, r)) (D : nat -> nat -> 'cV[R]_m) (V : nat -> nat -> 'cV[R]_r)
    (pi : pred nat) mu2 : gdp_of_shift ->
  (forall t s, (t < s)%N -> V t s = 0) ->
  (forall t s, (s <= t)%N -> \sum_(k < t.+1) K t k *m V k s = D t s) ->
  (forall h, sq (part h) <= (pi (size h))%:R) -> sensitivity_le V T pi mu2 ->
  gdp mu2 (fun z => view known part K D false z T) (fun z => view known part K D true z T).
Proof.
move=> gaussian causal whitened clipped sensitive.
apply: (gaussian _ _ (shift known part K D V)).
- by move=> z z' same; apply: view_local.
- exact: shift_predictable.
- by move=> z; apply: energy clipped sensitive.
- by move=> z; apply: coupling.
Qed.
End Gaussian.
End Runs.

(* All messages of n nodes, under noise of covariance R0 over nodes, correlated over steps by C^-1.
   What is known of a message are the model and the gradient without the record: functions of all
   messages before. *)
Section AllMessages.
Variables (R : realFieldType) (n r d : nat) (C inverse : nat -> nat -> R).
Hypothesis causal : forall t s, (t < s)%N -> C t s = 0.
Hypothesis inverted : forall t s, (s <= t)%N -> \sum_(k < t.+1) inverse t k * C k s = (t == s)%:R.
Variables (R0 : 'M[R]_n) (B : 'M[R]_(n, r)) (q : 'I_n).
Hypotheses (factored : R0 = B *m B^T) (regular : R0 \in unitmx).

Definition unit_q : 'cV[R]_n := delta_mx q 0.
Definition hiding : 'cV[R]_r := B^T *m invmx R0 *m unit_q.

Lemma hiding_is_seen : B *m hiding = unit_q.
Proof. by rewrite /hiding !mulmxA -factored mulmxV // mul1mx. Qed.

Lemma symmetric : (invmx R0)^T = invmx R0.
Proof. by rewrite trmx_inv factored trmx_mul trmxK. Qed.

Lemma price_of_hiding : sq hiding = invmx R0 q q.
Proof.
have -> : sq hiding = (hiding^T *m hiding) 0 0.
  by rewrite mxE; apply: eq_bigr => i _; rewrite big_ord1 !mxE expr2.
have -> : hiding^T *m hiding = unit_q^T *m invmx R0 *m unit_q.
  by rewrite {1}/hiding !trmx_mul trmxK symmetric -!mulmxA hiding_is_seen.
rewrite -mulmxA mxE (bigD1 q) //= big1 => [|i iq]; last by rewrite !mxE (negbTE iq) mul0r.
rewrite addr0 !mxE eqxx mul1r (bigD1 q) //= big1 => [|i iq]; last by rewrite !mxE (negbTE iq) mulr0.
by rewrite !mxE eqxx mulr1 addr0.
Qed.

Variables (known : seq 'M[R]_(n, d) -> 'M[R]_(n, d)) (part : seq 'M[R]_(n, d) -> 'rV[R]_d).
Variables (T : nat) (pi : pred nat).
Hypothesis clipped : forall h, sq (part h) <= (pi (size h))%:R.

(* The squared sensitivity of C is at most s2. *)
Definition strategy_le (s2 : R) := forall a : nat -> 'rV[R]_d, (forall s, sq (a s) <= (pi s)%:R) ->
  \sum_(t < T) sq (\sum_(s < t.+1) C t s *: a s) <= s2.

Definition messages record z :=
  view known part (fun t s => inverse t s *: B) (fun t s => (t == s)%:R *: unit_q) record z T.

Theorem all_messages s2 : strategy_le s2 -> exists u : draws R r d -> draws R r d,
  [/\ predictable u, forall z, messages false (shifted z (u z)) = messages true z &
      forall z, \sum_(t < T) sq (u z t) <= invmx R0 q q * s2].
Proof.
move=> sensitive; pose V t s := C t s *: hiding.
exists (shift known part (fun t s => inverse t s *: B) (fun t s => (t == s)%:R *: unit_q) V); split.
- exact: shift_predictable.
- move=> z; apply: coupling => t s st; first by rewrite /V causal ?scale0r.
  rewrite -inverted // scaler_suml; apply: eq_bigr => k _.
  by rewrite /V -scalemxAr -scalemxAl hiding_is_seen scalerA mulrC.
- move=> z; apply: energy clipped _ => a small.
  have -> : \sum_(t < T) sq (\sum_(s < t.+1) V t s *m a s)
          = invmx R0 q q * \sum_(t < T) sq (\sum_(s < t.+1) C t s *: a s).
    rewrite mulr_sumr; apply: eq_bigr => t _; rewrite -price_of_hiding -sq_outer mulmx_sumr.
    by congr sq; apply: eq_bigr => s _; rewrite /V -scalemxAl -scalemxAr.
  by apply: ler_wpmul2l; [rewrite -price_of_hiding sq_ge0 | apply: sensitive].
Qed.

Corollary all_messages_gdp gdp s2 : gdp_of_shift T gdp -> strategy_le s2 ->
  gdp _ (invmx R0 q q * s2) (messages false) (messages true).
Proof.
move=> gaussian /all_messages [u [ahead same paid]].
by apply: gaussian ahead paid same => z z' agree; apply: view_local.
Qed.

(* The sum of |C^T C| over pairs of the record's steps bounds the squared sensitivity. *)
Definition gram s s' := \sum_(t < T) C t s * C t s'.

Lemma product_le1 (a b : 'rV[R]_d) : sq a <= 1 -> sq b <= 1 -> `|\sum_j a 0 j * b 0 j| <= 1.
Proof.
rewrite /sq !big_ord1 => sa sb; rewrite -(ler_pmul2r (ltr0n _ 2)) mul1r.
apply: le_trans (_ : \sum_j (a 0 j ^+ 2 + b 0 j ^+ 2) <= _); last first.
  by rewrite big_split [_%:R]mulr2n ler_add.
rewrite -[2%:R]ger0_norm // -normrM mulr_suml; apply: le_trans (ler_norm_sum _ _ _) _.
apply: ler_sum => j _; rewrite ler_norml -subr_ge0 opprK -[X in _ && X]subr_ge0.
have -> : a 0 j * b 0 j * 2%:R + (a 0 j ^+ 2 + b 0 j ^+ 2) = (a 0 j + b 0 j) ^+ 2 by ring.
have -> : a 0 j ^+ 2 + b 0 j ^+ 2 - a 0 j * b 0 j * 2%:R = (a 0 j - b 0 j) ^+ 2 by ring.
by rewrite !sqr_ge0.
Qed.

Lemma sum_of_gram : strategy_le (\sum_(s < T | pi s) \sum_(s' < T | pi s') `|gram s s'|).
Proof.
move=> a small.
have off s : ~~ pi s -> a s = 0.
  move=> sp; apply/matrixP => i j; rewrite ord1 mxE; apply/eqP; rewrite -sqrf_eq0 eq_le.
  have := small s; rewrite (negbTE sp) /sq big_ord1 (bigD1 j) //= => h.
  rewrite sqr_ge0 andbT; apply: le_trans h; rewrite ler_addl.
  by apply: sumr_ge0 => k _; apply: sqr_ge0.
pose dot s s' := \sum_j a s 0 j * a s' 0 j.
have -> : \sum_(t < T) sq (\sum_(s < t.+1) C t s *: a s)
        = \sum_(s < T | pi s) \sum_(s' < T | pi s') gram s s' * dot s s'.
  have whole (t : 'I_T) : \sum_(s < t.+1) C t s *: a s = \sum_(s < T | pi s) C t s *: a s.
    rewrite (big_ord_widen T (fun s => C t s *: a s)) // big_mkcond [RHS]big_mkcond.
    apply: eq_bigr => s _; case: ltnP => [_|/causal ->]; last by rewrite scale0r; case: ifP.
    by case: ifP => // /negbT /off ->; rewrite scaler0.
  rewrite (eq_bigr (fun t : 'I_T => \sum_(s < T | pi s) \sum_(s' < T | pi s') C t s * C t s' * dot s s')).
    rewrite exchange_big; apply: eq_bigr => s _; rewrite exchange_big; apply: eq_bigr => s' _ /=.
    by rewrite /gram big_distrl.
  move=> t _; rewrite whole /sq big_ord1.
  transitivity (\sum_j \sum_(s < T | pi s) \sum_(s' < T | pi s')
      C t s * C t s' * (a s 0 j * a s' 0 j)).
    apply: eq_bigr => j _; rewrite summxE expr2 big_distrl; apply: eq_bigr => s _ /=.
    by rewrite big_distrr; apply: eq_bigr => s' _ /=; rewrite !mxE mulrACA.
  rewrite exchange_big; apply: eq_bigr => s _; rewrite exchange_big; apply: eq_bigr => s' _ /=.
  by rewrite /dot mulr_sumr.
apply: ler_sum => s ps; apply: ler_sum => s' ps'; apply: le_trans (ler_norm _) _.
rewrite normrM -[X in _ <= X]mulr1; apply: ler_wpmul2l => //.
by apply: product_le1; have := small; [move/(_ s) | move/(_ s')]; rewrite ?ps ?ps'.
Qed.
End AllMessages.
Print Assumptions adaptive_gdp.
Print Assumptions all_messages_gdp.
Print Assumptions sum_of_gram.
