(* Noise over time: the bound for any patterns of participation, which may overlap.

   sensitive         for all rows g_i of squared norm at most q, 0 off the pattern, |C G|^2 = tr(G^T X G) <= q tau, X =
                     C^T C: a record of the steps of the pattern, whose gradients it changes by at most sqrt q each,
                     changes what is released by at most sqrt (q tau)
   entries_sensitive it is enough that absolute entries of X on the pattern add up to at most tau
   pattern_bound     <L B, Z>^2 <= s sum(price tau) (tr(H X^-1) + sum(w l)), columns of B each on one pattern, L^T L at most
                     H + diag(w), w multipliers of limits l of variances, the diagonal of X^-1
   near_trace        (K - f) tr(H X^-1) <= tr(M H M^T) <= (K + f) tr(H X^-1) where M X M^T is about K I *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Require Import Quadratic Bound Enclosure.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Patterns.
Variable F : realFieldType.

Definition sensitive n (X : 'M[F]_n) (on : pred 'I_n) (tau : F) := forall p (G : 'M_(n, p)) q, 0 <= q ->
  (forall i j, ~~ on i -> G i j = 0) -> (forall i, (G *m G^T) i i <= q) -> \tr (G^T *m X *m G) <= q * tau.

Lemma gram_le n p (B : 'M[F]_(n, p)) q i j :
  (B *m B^T) i i <= q -> (B *m B^T) j j <= q -> `|(B *m B^T) i j| <= q.
Proof.
move=> hi hj; have e k l : ((col k B^T)^T *m col l B^T) 0 0 = (B *m B^T) k l.
  by rewrite !mxE; apply: eq_bigr => u _; rewrite !mxE.
have n0 k : 0 <= (B *m B^T) k k by rewrite -e -[_^T]mulmx1; apply: psd1.
have := cauchy_schwarz_vectors (col i B^T) (col j B^T); rewrite /quad !mulmx1 !e => h.
rewrite -(ler_pexpn2r (ltn0Sn 1)) ?nnegrE ?normr_ge0 //; last exact: le_trans (n0 i) hi.
by rewrite real_normK ?num_real //; apply: le_trans h _; rewrite expr2; apply: ler_pmul.
Qed.

Lemma entries_sensitive n (X : 'M[F]_n) (on : pred 'I_n) tau :
  \sum_(i | on i) \sum_(j | on j) `|X i j| <= tau -> sensitive X on tau.
Proof.
move=> used p G q q0 off small.
have -> : \tr (G^T *m X *m G) = \sum_i \sum_j X i j * (G *m G^T) j i.
  by rewrite -mulmxA mxtrace_mulC -mulmxA; apply: eq_bigr => i _; rewrite mxE.
apply: le_trans (_ : _ <= q * \sum_(i | on i) \sum_(j | on j) `|X i j|) _; last by apply: ler_wpmul2l.
rewrite [X in _ <= _ * X]big_mkcond mulr_sumr; apply: ler_sum => i _ /=.
have [oni|noti] := boolP (on i); last first.
  rewrite mulr0 big1 // => j _; rewrite mxE big1 ?mulr0 // => k _.
  by rewrite [_^T _ _]mxE (off i) // mulr0.
rewrite [X in _ <= _ * X]big_mkcond mulr_sumr; apply: ler_sum => j _ /=.
have [onj|notj] := boolP (on j); last by rewrite mxE big1 ?mulr0 // => k _; rewrite (off j) // mul0r.
apply: le_trans (ler_norm _) _; rewrite normrM [q * _]mulrC; apply: ler_wpmul2l => //.
exact: gram_le.
Qed.

Theorem pattern_bound m n p k (s : F) (H : 'M_n) (L : 'M_(m, n)) (B : 'M_(n, p)) (Z : 'M_(m, p)) (X : 'M[F]_n)
    (pat : 'I_k -> pred 'I_n) (c : 'I_p -> 'I_k) (price tau : 'I_k -> F) (w l : 'rV_n) :
  posdef X -> norm_le s Z -> 0 <= s -> (forall a, sensitive X (pat a) (tau a)) ->
  (forall a, 0 <= price a) -> (forall a, 0 <= tau a) ->
  (forall i j, ~~ pat (c j) i -> B i j = 0) -> (forall a i, \sum_(j | c j == a) B i j ^+ 2 <= price a) ->
  psd (H + diag_mx w - L^T *m L) -> (forall i, w 0 i * invmx X i i <= w 0 i * l 0 i) ->
  (inner (L *m B) Z) ^+ 2 <= s * (\sum_a price a * tau a) * (\tr (H *m invmx X) + \sum_i w 0 i * l 0 i).
Proof.
move=> pX nZ s0 sens p0 t0 off le_price hL hw.
have := @limited_bound F m n p s (\sum_a price a * tau a) H L B Z w 0 l 0 X pX nZ s0.
have -> : \sum_i (w 0 i * l 0 i - (0 : 'rV[F]_n) 0 i * (0 : 'rV[F]_n) 0 i) = \sum_i w 0 i * l 0 i.
  by apply: eq_bigr => i _; rewrite !mxE !mul0r subr0.
apply=> //.
- by apply: sumr_ge0 => a _; apply: mulr_ge0.
- rewrite trace_quad (partition_big c xpredT) //=; apply: ler_sum => a _.
  pose G : 'M[F]_(n, p) := \matrix_(i, j) (if c j == a then B i j else 0).
  have offG i j : ~~ pat a i -> G i j = 0.
    by move=> noti; rewrite mxE; case: eqP => // e; rewrite off // e.
  have smallG i : (G *m G^T) i i <= price a.
    apply: le_trans (le_price a i); rewrite mxE [X in _ <= X]big_mkcond; apply: ler_sum => j _ /=.
    by rewrite !mxE; case: eqP; rewrite ?mul0r ?expr2.
  apply: le_trans (sens a p G (price a) (p0 a) offG smallG); rewrite trace_quad big_mkcond; apply: ler_sum => j _ /=.
  case: ifP => ca; last by apply/posdef_psd.
  by rewrite le_eqVlt; apply/orP; left; apply/eqP; congr (quad _ _); apply/colP => i; rewrite !mxE ca.
- by rewrite subr0.
- by move=> i; rewrite !mxE !mul0r.
Qed.

(* The trace of two semidefinite matrices, the second made definite by any little of I. *)
Lemma trace_psd_psd n (H T : 'M[F]_n) : H^T = H -> psd H -> psd T -> 0 <= \tr (H *m T).
Proof.
move=> sH pH pT; rewrite leNgt; apply/negP => neg.
have tT : 0 <= \tr T by have := trace_psd 1%:M pT; rewrite trmx1 mul1mx mulmx1.
have d0 : 0 < \tr T + 1 by apply: ltr_paddl tT ltr01.
pose a := - \tr (H *m T) / (\tr T + 1).
have a0 : 0 < a by rewrite divr_gt0 // oppr_gt0.
have pd : posdef (H + a%:M).
  split=> [|x x0]; first by rewrite linearD /= sH tr_scalar_mx.
  by rewrite quadD quad_scalar; apply: ltr_paddl (pH x) _; rewrite mulr_gt0 ?quad1_gt0.
have := trace_posdef_psd pd pT; rewrite mulmxDl mxtraceD mul_scalar_mx mxtraceZ leNgt => /negP; apply.
have -> : \tr (H *m T) = - (a * (\tr T + 1)) by rewrite /a divfK ?opprK ?gt_eqF.
by rewrite mulrDr mulr1 opprD addrAC addNr add0r oppr_lt0.
Qed.

Section Inverse.
Variables (n : nat) (X M : 'M[F]_n) (K f : F).
Hypotheses (sX : X^T = X) (fK : f < K) (h : rows_le (K%:M - M *m X *m M^T) f).
Let G := M *m X *m M^T.

Lemma near_forms x : (K - f) * quad (invmx X) x <= quad 1%:M (M *m x) <= (K + f) * quad (invmx X) x.
Proof.
have uM := unitM sX fK h; have uX := posdef_unit (near_posdef sX fK h).
have pG : posdef G := posG sX fK h; have uG := posdef_unit pG; have sG : G^T = G := pG.1.
pose y := M *m x; pose z := invmx G *m y; have yz : y = G *m z by rewrite /z mulKVmx.
have uMT : M^T \in unitmx by rewrite unitmx_tr.
have e : invmx X = M^T *m invmx G *m M.
  apply: (can_inj (mulKmx uX)); rewrite mulmxV //; apply/esym.
  by apply: (can_inj (mulKmx uM)); rewrite mulmx1 !mulmxA -/G mulmxV // mul1mx.
rewrite e quad_congr -/y; have v : quad (invmx G) y = quad G z.
  by rewrite /z -[RHS]quad_congr trmx_inv sG mulVmx // mul1mx.
have v' : quad (invmx G) y = (y^T *m z) 0 0 by rewrite /quad -mulmxA.
have near u := near_scalar u sG h.
have nn u : 0 <= quad 1%:M u := @psd1 F n u.
have Gn u : 0 <= quad G u := posdef_psd pG u.
have d : 0 < K - f by rewrite subr_gt0.
apply/andP; split.
  have [z0|zn] := eqVneq (quad 1%:M z) 0.
    have z1 : z = 0 by apply/eqP; apply: contraT => /quad1_gt0; rewrite z0 ltxx.
    by rewrite v z1 [quad G 0]/quad mulmx0 mxE mulr0; apply: nn.
  have zp : 0 < quad 1%:M z by rewrite lt_def zn nn.
  have cs := cauchy_schwarz_vectors y z; rewrite -v' v in cs.
  have /andP [lo _] := near z.
  have vp : 0 < quad G z by apply: lt_le_trans lo; apply: mulr_gt0.
  rewrite v -(ler_pmul2r vp) -mulrA -expr2; apply: le_trans (ler_wpmul2l (ltW d) cs) _.
  by rewrite mulrCA; apply: ler_wpmul2l.
have [y0|yn] := eqVneq (quad 1%:M y) 0.
  have y1 : y = 0 by apply/eqP; apply: contraT => /quad1_gt0; rewrite y0 ltxx.
  by rewrite y1 /quad !mulmx0 mxE mulr0.
have yp : 0 < quad 1%:M y by rewrite lt_def yn nn.
have := cauchy_schwarz y z sG (posdef_psd pG); rewrite !trace1 -/(quad G y) -/(quad G z).
have -> : (y^T *m G *m z) 0 0 = quad 1%:M y by rewrite -mulmxA -yz /quad mulmx1.
move=> cs; rewrite v -(ler_pmul2r yp) -expr2; apply: le_trans cs _; rewrite mulrAC.
by have /andP [_ hi] := near y; apply: ler_wpmul2r.
Qed.

Lemma near_trace (H : 'M[F]_n) : H^T = H -> psd H ->
  (K - f) * \tr (H *m invmx X) <= \tr (M *m H *m M^T) <= (K + f) * \tr (H *m invmx X).
Proof.
move=> sH pH; have -> : \tr (M *m H *m M^T) = \tr (H *m (M^T *m M)) by rewrite -mulmxA mxtrace_mulC mulmxA.
have q x : quad (M^T *m M) x = quad 1%:M (M *m x) by rewrite -[M^T]mulmx1 quad_congr.
have quadZ k x : quad (k *: invmx X) x = k * quad (invmx X) x by rewrite /quad -scalemxAr -scalemxAl mxE.
have tr k : k * \tr (H *m invmx X) = \tr (H *m (k *: invmx X)) by rewrite -scalemxAr mxtraceZ.
rewrite !tr; apply/andP; split; rewrite -subr_ge0 -[X in 0 <= X]raddfB /= -mulmxBr; apply: trace_psd_psd => // x;
  by rewrite quadD quadN quadZ q subr_ge0; have /andP [] := near_forms x.
Qed.
End Inverse.
End Patterns.
