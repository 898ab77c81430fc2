(* Theorem F4 (docs/mathematics/views.md): a certificate of privacy before an observer of a part, when
   gradients answer to models.

   The world with the record runs on noise z, the world without it on z + u. The shift u = Y xi, xi the
   difference of answers, keeps both views equal at every step. Answers of node i keep within
   radius_i |y - x| of rho_i (y - x); of the record's part nothing is asked but its size, and both may
   depend on all that was seen. Matrices Pi_t, prices c_t of what is unknown of answers and k_t of the
   record certify a bound on the energy of the shift if the inequality [step_holds] holds at every
   step: any such matrices will do, no inverse and no minimum is asked for. Riccati.v finds such and
   checks them.

   Proved here, from nothing: views agree ([views_agree]), the shift is known before the noise of its
   step is drawn ([shift_ahead]), and its energy is at most [Pi_s]_qq + sum k_t ([energy_bound]), s the
   record's first step, for all losses whose answers are as said. Of normal laws nothing is used but
   the hypothesis of Adaptive.v, in [partial_view_gdp]. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Require Import Adaptive.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Forms.
Variable R : realFieldType.

(* The quadratic form of P, summed over the columns of x. *)
Definition form n d (P : 'M[R]_n) (x : 'M[R]_(n, d)) : R := \tr (x^T *m P *m x).

Lemma form_columns n d (P : 'M[R]_n) (x : 'M[R]_(n, d)) : form P x = \sum_j form P (col j x).
Proof.
rewrite /form /mxtrace; apply: eq_bigr => j _; rewrite big_ord1 !mxE.
apply: eq_bigr => k _; rewrite !mxE; congr (_ * _).
by apply: eq_bigr => i _; rewrite !mxE.
Qed.

Lemma form0 n d (x : 'M[R]_(n, d)) : form 0 x = 0.
Proof. by rewrite /form mulmx0 mul0mx mxtrace0. Qed.

(* Of one node's row. *)
Lemma form_delta n d (P : 'M[R]_n) q (g : 'rV[R]_d) : form P (- (delta_mx q 0 *m g)) = P q q * sq g.
Proof.
rewrite /form (_ : (- _)^T = - (delta_mx q 0 *m g)^T); last by apply/matrixP => i j; rewrite !mxE.
rewrite !mulNmx mulmxN opprK trmx_mul trmx_delta -!mulmxA [P *m _]mulmxA.
rewrite -colE [delta_mx 0 q *m _]mulmxA -rowE [row q _]mx11_scalar !mxE mul_scalar_mx.
rewrite -scalemxAr mxtraceZ /sq big_ord1 mxtrace_mulC /mxtrace big_ord1 mxE; congr (_ * _).
by apply: eq_bigr => j _; rewrite !mxE expr2.
Qed.

Lemma sq0 m n : sq (0 : 'M[R]_(m, n)) = 0.
Proof. by rewrite /sq big1 // => i _; rewrite big1 // => j _; rewrite mxE expr0n. Qed.

Lemma sqN m n (A : 'M[R]_(m, n)) : sq (- A) = sq A.
Proof. by apply: eq_bigr => i _; apply: eq_bigr => j _; rewrite mxE sqrrN. Qed.

Lemma sq_rows n d (x : 'M[R]_(n, d)) : sq x = \sum_i sq (row i x).
Proof. by apply: eq_bigr => i _; rewrite /sq big_ord1; apply: eq_bigr => j _; rewrite !mxE. Qed.

Lemma sq_columns n d (x : 'M[R]_(n, d)) : sq x = \sum_j sq (col j x).
Proof.
rewrite /sq exchange_big; apply: eq_bigr => j _; apply: eq_bigr => i _.
by rewrite big_ord1 !mxE.
Qed.

Lemma col_mul m n d (A : 'M[R]_(m, n)) (x : 'M[R]_(n, d)) j : col j (A *m x) = A *m col j x.
Proof. by rewrite !colE mulmxA. Qed.

Lemma sq_le0 m n (A : 'M[R]_(m, n)) : sq A <= 0 -> A = 0.
Proof.
move=> small; apply/matrixP => i j; rewrite mxE; apply/eqP; rewrite -sqrf_eq0 eq_le sqr_ge0 andbT.
apply: le_trans small; rewrite /sq (bigD1 i) //= (bigD1 j) //= -addrA ler_addl.
by rewrite addr_ge0 // ?sumr_ge0 // => l _; rewrite ?sumr_ge0 // => *; rewrite sqr_ge0.
Qed.

(* The price of a sum is at most that of its parts, at prices whose inverses add up. *)
Lemma price_of_sum (b c k x y : R) : 0 <= c -> 0 < k -> b * (c + k) <= c * k ->
  b * (x + y) ^+ 2 <= c * x ^+ 2 + k * y ^+ 2.
Proof.
move=> c0 k0 less; have s0 : 0 < c + k by rewrite ltr_paddl.
rewrite -(ler_pmul2r s0) mulrAC; apply: le_trans (ler_wpmul2r (sqr_ge0 _) less) _.
rewrite -subr_ge0.
have -> : (c * x ^+ 2 + k * y ^+ 2) * (c + k) - c * k * (x + y) ^+ 2 = (c * x - k * y) ^+ 2 by ring.
exact: sqr_ge0.
Qed.

(* Squared lengths of rows with weights. *)
Definition weighed n d (w : 'I_n -> R) (x : 'M[R]_(n, d)) : R := \sum_i w i * sq (row i x).

Lemma weighed_columns n d w (x : 'M[R]_(n, d)) : weighed w x = \sum_j weighed w (col j x).
Proof.
rewrite /weighed exchange_big; apply: eq_bigr => i _; rewrite -mulr_sumr; congr (_ * _).
rewrite /sq big_ord1; apply: eq_bigr => j _; by rewrite big_ord1 big_ord1 !mxE.
Qed.
End Forms.

Section Game.
Variables (R : realFieldType) (n r p d : nat).
Notation state := 'M[R]_(n, d).
Notation seen := (seq 'M[R]_(p, d)).

(* The system: what answers and draws put into the view, and into the next state. *)
Variables (Gamma : nat -> 'M[R]_(p, n)) (Theta : nat -> 'M[R]_(p, r)).
Variables (F : nat -> 'M[R]_n) (Q : nat -> 'M[R]_(n, r)).
Variables (start : state) (q : 'I_n).

(* What the observer sends itself: any function of what it saw. *)
Variable sent : seen -> state.

(* How states answer, and the record's part, of what was seen before and of the own state. *)
Variables (phi : seen -> 'I_n -> 'rV[R]_d -> 'rV[R]_d) (part : seen -> 'rV[R]_d -> 'rV[R]_d).

Definition answers (record : bool) (h : seen) (x : state) : state :=
  \matrix_i phi h i (row i x) + if record then delta_mx q 0 *m part h (row q x) else 0.

Fixpoint world (record : bool) (z : draws R r d) (t : nat) : seen * state :=
  if t is s.+1 then
    let: (h, x) := world record z s in let y := answers record h x in
    (rcons h (Gamma s *m y + Theta s *m z s), F s *m y + Q s *m z s + sent h)
  else ([::], start).

Variable T : nat.
Definition view record z := (world record z T).1.

(* The policy. *)
Variable Y : nat -> 'M[R]_(r, n).
Hypothesis hidden : forall t, (t < T)%N -> Gamma t + Theta t *m Y t = 0.

(* Both worlds at once: what is seen, the state with the record, that without. *)
Definition difference (w : seen * state * state) : state :=
  let: (h, x, x') := w in answers false h x' - answers true h x.

Arguments difference : simpl never.

Fixpoint worlds (z : draws R r d) (t : nat) : seen * state * state :=
  if t is s.+1 then
    let: (h, x, x') := worlds z s in
    let u := Y s *m difference (worlds z s) in
    let y := answers true h x in
    (rcons h (Gamma s *m y + Theta s *m z s), F s *m y + Q s *m z s + sent h,
     F s *m answers false h x' + Q s *m (z s + u) + sent h)
  else ([::], start, start).

Definition shift (z : draws R r d) : draws R r d := fun t => Y t *m difference (worlds z t).

Lemma both z t : (t <= T)%N -> let: (h, x, x') := worlds z t in
  world true z t = (h, x) /\ world false (shifted z (shift z)) t = (h, x').
Proof.
elim: t => //= t IH tT; move: (IH (ltnW tT)); rewrite /shifted /shift.
case E: (worlds z t) => [[h x] x'] [-> ->] /=.
split=> //; congr (rcons _ _, _); rewrite /difference; move: (answers _ _ _) (answers _ _ _) => y' y.
rewrite mulmxDr mulmxA (canRL (addKr _) (hidden tT)) addr0 mulNmx mulmxBr opprB.
by rewrite [Theta t *m _ + _]addrC addrA addrCA subrr addr0.
Qed.

Theorem views_agree z : view false (shifted z (shift z)) = view true z.
Proof. by rewrite /view; have := both z (leqnn T); case: (worlds z T) => [[h x] x'] [-> ->]. Qed.

Theorem shift_ahead : predictable shift.
Proof.
move=> z z' t same; rewrite /shift; congr (_ *m difference _).
by elim: t same => //= t IH same; rewrite IH => [|s st]; [rewrite same | apply: same; apply: ltnW].
Qed.

Lemma view_local record z z' : (forall t, (t < T)%N -> z t = z' t) -> view record z = view record z'.
Proof.
suff same_world t : (forall k, (k < t)%N -> z k = z' k) -> world record z t = world record z' t.
  by rewrite /view => /same_world ->.
elim: t => //= t IH same; rewrite IH => [|k kt]; last by apply: same; apply: ltnW.
by rewrite same.
Qed.

(* What is asked of answers, and of the record: its size at its steps pi. *)
Variables (rho radius : 'I_n -> R) (pi : pred nat).
Hypothesis responses : forall h i x y,
  sq (phi h i y - phi h i x - rho i *: (y - x)) <= radius i ^+ 2 * sq (y - x).
Hypothesis clipped : forall h x, sq (part h x) <= (pi (size h))%:R.

(* The certificate: Pi_t; prices c_t, of which c_tq is that of q but for the record, b_t that of both
   together, and k_t that of the record. *)
Variables (Pi : nat -> 'M[R]_n) (c : nat -> 'I_n -> R) (b k : nat -> R).
Definition together t i := if i == q then b t else c t i.
Definition loop t : 'M[R]_n := F t + Q t *m Y t.
Definition scaled m (x : 'M[R]_(n, m)) : 'M[R]_(n, m) := \matrix_(i, j) (rho i * x i j).

Definition step_holds t := forall x e : 'cV[R]_n, let next := loop t *m x in
  sq (Y t *m x) + weighed (fun i => c t.+1 i * radius i ^+ 2) next + form (Pi t.+1) (scaled next + e)
    <= form (Pi t) x + weighed (together t.+1) e.

Definition prices_hold t := (forall i, 0 <= c t i) /\
  if pi t then 0 < k t /\ b t * (c t q + k t) <= c t q * k t else b t <= c t q.

Variable first : nat.
Hypothesis before_first : forall t, (t < first)%N -> ~~ pi t.
Hypothesis is_first : (first < T)%N.
Hypothesis steps : forall t, (first <= t < T)%N -> step_holds t.
Hypothesis prices : forall t, (first < t < T)%N -> prices_hold t.
Hypothesis no_more : Pi T = 0.
Hypothesis no_price : forall i, c T i = 0.
Hypothesis starts : 0 <= Pi first q q.

Lemma col_scaled m (x : 'M[R]_(n, m)) j : col j (scaled x) = scaled (col j x).
Proof. by apply/matrixP => i l; rewrite !mxE. Qed.

(* The same of all d coordinates together. *)
Lemma step_of_matrices t (x e : state) : (first <= t < T)%N -> let next := loop t *m x in
  sq (Y t *m x) + weighed (fun i => c t.+1 i * radius i ^+ 2) next + form (Pi t.+1) (scaled next + e)
    <= form (Pi t) x + weighed (together t.+1) e.
Proof.
move=> /steps holds; rewrite /= sq_columns 2!weighed_columns 2!form_columns -!big_split.
apply: ler_sum => j _ /=; have := holds (col j x) (col j e).
by rewrite /= linearD /= col_scaled !col_mul.
Qed.

(* One step of the record costs k, any other nothing. *)
Lemma one_price t (a g : 'rV[R]_d) : prices_hold t -> sq g <= (pi t)%:R ->
  b t * sq (a + g) <= c t q * sq a + (if pi t then k t else 0).
Proof.
move=> [cs]; case: ifP => _ => [[k0 both_prices] | one] small.
  apply: le_trans (_ : c t q * sq a + k t * sq g <= _); last first.
    by rewrite ler_add2l -[X in _ <= X]mulr1; apply: ler_wpmul2l => //; apply: ltW.
  rewrite /sq !big_ord1 !mulr_sumr -big_split; apply: ler_sum => j _; rewrite mxE.
  exact: price_of_sum.
by rewrite (sq_le0 small) !addr0; apply: ler_wpmul2r => //; apply: sq_ge0.
Qed.


Lemma size_worlds z t : size (worlds z t).1.1 = t.
Proof. by elim: t => //= t IH; case: (worlds z t) IH => [[h x] x'] /=; rewrite size_rcons => ->. Qed.

(* States differ by what the policy leaves of the difference of answers. *)
Lemma next_states z t : let: (h, x, x') := worlds z t.+1 in
  x' - x = loop t *m difference (worlds z t).
Proof.
rewrite /=; case: (worlds z t) => [[h x] x']; rewrite /difference /loop mulmxDl -mulmxA.
move: (answers true h x) (answers false h x') => y y'.
rewrite opprD addrACA subrr addr0 [Q t *m (z t + _)]mulmxDr opprD addrACA.
by rewrite [Q t *m z t + _]addrC addrK -mulmxBr.
Qed.

Lemma row_difference h x x' i : row i (answers false h x' - answers true h x) =
  phi h i (row i x') - phi h i (row i x) - if i == q then part h (row q x) else 0.
Proof.
apply/rowP => j; rewrite !mxE addr0 opprD addrA; congr (_ - _).
by rewrite big_ord1 mxE eqxx andbT; case: eqP => _; rewrite ?mul1r // mul0r mxE.
Qed.

Lemma same_states h x : difference (h, x, x) = - (delta_mx q 0 *m part h (row q x)).
Proof.
apply/row_matrixP => i; rewrite /difference row_difference subrr sub0r linearN /= row_mul; congr (- _).
by case: eqP => [-> | ne]; apply/rowP => j; rewrite !mxE big_ord1 !mxE eqxx ?eqxx ?mul1r //;
   case: eqP; rewrite // mul0r.
Qed.

(* Before the record's first step nothing differs. *)
Lemma still z t : (t <= first)%N -> let: (h, x, x') := worlds z t in x = x'.
Proof.
elim: t => // t IH tf; move: (IH (ltnW tf)) (size_worlds z t) (next_states z t).
case: (worlds z t.+1) => [[_ x1] x1']; case: (worlds z t) => [[h x] x'] /= <- sh next.
apply/esym/eqP; rewrite -subr_eq0 next same_states (@sq_le0 _ _ _ (part h _)).
  by rewrite mulmx0 oppr0 mulmx0.
by have := clipped h (row q x); rewrite sh (negbTE (before_first tf)).
Qed.

Lemma no_shift z t : (t < first)%N -> shift z t = 0.
Proof.
move=> tf; rewrite /shift; move: (still z (ltnW tf)) (size_worlds z t).
case: (worlds z t) => [[h x] x'] /= <- sh; rewrite same_states (@sq_le0 _ _ _ (part h _)).
  by rewrite mulmx0 oppr0 mulmx0.
by have := clipped h (row q x); rewrite sh (negbTE (before_first tf)).
Qed.

Lemma first_difference z : form (Pi first) (difference (worlds z first)) <= Pi first q q.
Proof.
move: (still z (leqnn _)); case: (worlds z first) => [[h x] x'] /= <-; rewrite same_states.
rewrite form_delta -[X in _ <= X]mulr1; apply: ler_wpmul2l => //; apply: le_trans (clipped _ _) _.
by rewrite lern1 leq_b1.
Qed.

Lemma one_step z t : (first <= t < T)%N ->
  sq (shift z t) + form (Pi t.+1) (difference (worlds z t.+1))
    <= form (Pi t) (difference (worlds z t)) + (if (t.+1 < T)%N && pi t.+1 then k t.+1 else 0).
Proof.
move=> range; have /andP[ft tT] := range; rewrite /shift.
have := fun e => step_of_matrices (difference (worlds z t)) e range.
have := next_states z t; have := size_worlds z t.+1; set dt := difference (worlds z t).
case: (worlds z t.+1) => [[h x] x'] /= sh next holds; rewrite /difference.
have [lt | le] := ltnP t.+1 T; last first.
  have eT : t.+1 = T by apply/eqP; rewrite eqn_leq tT.
  rewrite eT no_more form0 !addr0; apply: le_trans (_ : _ <= form (Pi t) dt + weighed (together t.+1) (0 : state)) _.
    by apply: le_trans (holds 0); rewrite eT no_more form0 addr0 ler_addl /weighed big1 // => i _; rewrite no_price !mul0r.
  by rewrite /weighed big1 ?addr0 // => i _; rewrite row0 sq0 mulr0.
have := holds (answers false h x' - answers true h x - scaled (x' - x)).
rewrite -next [scaled _ + _]addrC subrK => paid.
set known := weighed _ _ in paid; set rest := weighed _ _ in paid.
have small : rest <= known + (if pi t.+1 then k t.+1 else 0).
  have [c0 _] : prices_hold t.+1 by apply: prices; rewrite ltnS ft.
  pose a i := phi h i (row i x') - phi h i (row i x) - rho i *: (row i x' - row i x).
  have known_answers i : c t.+1 i * sq (a i) <= c t.+1 i * radius i ^+ 2 * sq (row i (x' - x)).
    by rewrite -mulrA; apply: ler_wpmul2l => //; rewrite linearB; apply: responses.
  have row_rest i : row i (answers false h x' - answers true h x - scaled (x' - x))
      = a i - if i == q then part h (row q x) else 0.
    rewrite linearB /= row_difference /a [RHS]addrAC; congr (_ - _).
    by apply/rowP => j; rewrite !mxE.
  rewrite /rest /known /weighed (bigD1 q) //= [X in _ <= X + _](bigD1 q) //= [X in _ <= X]addrAC ler_add //.
    rewrite /together eqxx row_rest eqxx.
    apply: le_trans (_ : _ <= c t.+1 q * sq (a q) + if pi t.+1 then k t.+1 else 0) _.
      apply: one_price; first by apply: prices; rewrite ltnS ft.
      by rewrite sqN -sh; apply: clipped.
    by rewrite ler_add2r.
  apply: ler_sum => i iq; rewrite /together (negbTE iq) row_rest (negbTE iq) subr0.
  exact: known_answers.
rewrite -(ler_add2l known); apply: le_trans (le_trans _ paid) _.
  by rewrite addrCA addrA.
by rewrite addrCA ler_add2l.
Qed.

Theorem energy_bound z :
  \sum_(t < T) sq (shift z t) <= Pi first q q + \sum_(first.+1 <= t < T | pi t) k t.
Proof.
pose prices_from t := \sum_(t.+1 <= j < T | pi j) k j.
have remaining m t : (first <= t)%N -> (t + m = T)%N ->
    \sum_(t <= j < T) sq (shift z j) <= form (Pi t) (difference (worlds z t)) + prices_from t.
  elim: m t => [|m IH] t ft.
    rewrite addn0 => ->; rewrite big_geq // no_more form0 add0r /prices_from big_geq //.
  move=> tm; have tT : (t < T)%N by rewrite -tm addnS ltnS leq_addr.
  rewrite big_ltn //; have := IH t.+1 (leqW ft); rewrite addSnnS => /(_ tm) later.
  apply: le_trans (ler_add (lexx _) later) _; rewrite addrA.
  apply: le_trans (ler_add (one_step z _) (lexx _)) _; first by rewrite ft.
  rewrite -addrA ler_add2l /prices_from; case: ltnP => lt; last by rewrite !big_geq ?addr0 // ltnW.
  by rewrite [X in _ <= X]big_ltn_cond //=; case: ifP; rewrite ?add0r.
rewrite -(big_mkord xpredT (fun t => sq (shift z t))) (big_cat_nat _ _ _ (leq0n first)) ?(ltnW is_first) //=.
rewrite big_nat big1 ?add0r => [|t /andP[_ tf]]; last by rewrite no_shift // sq0.
have := remaining (T - first)%N first (leqnn _); rewrite subnKC ?(ltnW is_first) // => /(_ erefl) h.
by apply: le_trans h _; rewrite ler_add2r first_difference.
Qed.

(* Theorem F4, for a certificate of any kind. *)
Theorem partial_view_gdp gdp : gdp_of_shift T gdp ->
  gdp _ (Pi first q q + \sum_(first.+1 <= t < T | pi t) k t) (view false) (view true).
Proof.
move=> gaussian; apply: gaussian shift_ahead energy_bound views_agree => z z' same.
exact: view_local.
Qed.
End Game.
Print Assumptions energy_bound.
Print Assumptions partial_view_gdp.
