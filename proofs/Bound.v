(* The bound of docs/mathematics/bound.md, theorem A: nothing but Cauchy and Schwarz.

   trace_bound       <L B, Z>^2 <= s tr(L^T L X^-1) tr(B^T X B) for every X > 0 and |Z|^2 <= s
   limited_bound     with L^T L <= H + diag(w - u) in place of H, for variances below caps c and above floors f
   node_bound        for precisions X with X_ii <= tau_i, the budgets of nodes
   covariance_bound  the same of the covariance R = X^-1: what every noise of these budgets leaves at least *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Require Import Quadratic.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Bound.
Variable F : realFieldType.

Theorem trace_bound m n p (s : F) (L : 'M_(m, n)) (B : 'M_(n, p)) (Z : 'M_(m, p)) (X : 'M[F]_n) :
  posdef X -> norm_le s Z ->
  (inner (L *m B) Z) ^+ 2 <= s * (\tr (L^T *m L *m invmx X) * \tr (B^T *m X *m B)).
Proof.
move=> pX nZ; have uX := posdef_unit pX; have [sX _] := pX.
have LX : (invmx X *m L^T)^T *m X = L by rewrite trmx_mul trmxK trmx_inv sX mulmxKV.
have -> : inner (L *m B) Z = \tr ((invmx X *m L^T)^T *m X *m (B *m Z^T)).
  by rewrite LX /inner -[LHS]mxtrace_tr trmx_mul trmxK mxtrace_mulC mulmxA.
apply: le_trans (cauchy_schwarz _ _ sX (posdef_psd pX)) _.
have e : \tr (L *m (invmx X *m L^T)) = \tr (L^T *m L *m invmx X) by rewrite mulmxA mxtrace_mulC mulmxA.
rewrite LX e mulrCA; apply: ler_wpmul2l.
  by rewrite -mulmxA mxtrace_mulC -{1}[L]trmxK; apply/trace_psd/posdef_psd/posdef_inv.
have pT : psd (B *m (s%:M - Z^T *m Z) *m B^T).
  rewrite -{1}[B]trmxK; apply: psd_congr => x; rewrite quadD quadN quad_scalar subr_ge0.
  by rewrite -[Z^T]mulmx1 quad_congr; apply: nZ.
rewrite -subr_ge0.
have -> : \tr (B^T *m X *m B) = \tr (X *m (B *m B^T)) by rewrite -mulmxA mxtrace_mulC mulmxA.
have -> : \tr ((B *m Z^T)^T *m X *m (B *m Z^T)) = \tr (X *m (B *m Z^T *m (Z *m B^T))).
  by rewrite trmx_mul trmxK -mulmxA mxtrace_mulC !mulmxA.
have := trace_posdef_psd pX pT; rewrite mulmxBr mulmxBl mul_mx_scalar -scalemxAl mulmxBr.
by rewrite raddfB /= -scalemxAr mxtraceZ !mulmxA.
Qed.

(* What a budget allows is at most P, and multipliers w of caps c and u of floors f are worth w c - u f. *)
Theorem limited_bound m n p (s P : F) (H : 'M_n) (L : 'M_(m, n)) (B : 'M_(n, p)) (Z : 'M_(m, p)) (w u c f : 'rV[F]_n)
    (X : 'M[F]_n) :
  posdef X -> norm_le s Z -> 0 <= s -> 0 <= P -> \tr (B^T *m X *m B) <= P ->
  psd (H + diag_mx (w - u) - L^T *m L) ->
  (forall i, w 0 i * invmx X i i <= w 0 i * c 0 i) -> (forall i, u 0 i * f 0 i <= u 0 i * invmx X i i) ->
  (inner (L *m B) Z) ^+ 2
    <= s * P * (\tr (H *m invmx X) + \sum_i (w 0 i * c 0 i - u 0 i * f 0 i)).
Proof.
move=> pX nZ s0 P0 hP hL hw hu; apply: le_trans (trace_bound L B pX nZ) _; rewrite -mulrA.
apply: ler_wpmul2l => //; rewrite mulrC.
have l0 : 0 <= \tr (L^T *m L *m invmx X).
  by rewrite -mulmxA mxtrace_mulC -{1}[L]trmxK; apply/trace_psd/posdef_psd/posdef_inv.
apply: le_trans (ler_wpmul2r l0 hP) _; apply: ler_wpmul2l => //.
have := trace_posdef_psd (posdef_inv pX) hL.
rewrite mxtrace_mulC mulmxBl mulmxDl raddfB raddfD /= subr_ge0 => h; apply: le_trans h _.
rewrite ler_add2l; apply: ler_sum => i _; rewrite mul_diag_mx !mxE mulrBl.
exact: ler_sub (hw i) (hu i).
Qed.

(* Budgets of nodes: B = diag(b), multipliers b_i^2. *)
Theorem node_bound m n (s : F) (H : 'M_n) (L Z : 'M_(m, n)) (b tau w u c f : 'rV[F]_n) (X : 'M[F]_n) :
  posdef X -> norm_le s Z -> 0 <= s -> (forall i, X i i <= tau 0 i) ->
  psd (H + diag_mx (w - u) - L^T *m L) ->
  (forall i, w 0 i * invmx X i i <= w 0 i * c 0 i) -> (forall i, u 0 i * f 0 i <= u 0 i * invmx X i i) ->
  (inner (L *m diag_mx b) Z) ^+ 2
    <= s * (\sum_i b 0 i ^+ 2 * tau 0 i) * (\tr (H *m invmx X) + \sum_i (w 0 i * c 0 i - u 0 i * f 0 i)).
Proof.
move=> pX nZ s0 h; have ineq i : 0 <= b 0 i ^+ 2 * X i i <= b 0 i ^+ 2 * tau 0 i.
  apply/andP; split; last by apply: ler_wpmul2l => //; apply: sqr_ge0.
  apply: mulr_ge0; first exact: sqr_ge0.
  have := trace_psd (delta_mx i (0 : 'I_1)) (posdef_psd pX); rewrite trace1.
  by rewrite trmx_delta -rowE mxE (bigD1 i) //= !mxE !eqxx mulr1 big1 ?addr0 // => j ij;
    rewrite !mxE (negPf ij) mulr0.
apply: limited_bound => //.
  by apply: sumr_ge0 => i _; have /andP [h0 h1] := ineq i; apply: le_trans h1.
apply: ler_sum => i _; rewrite tr_diag_mx mul_mx_diag mul_diag_mx !mxE.
have -> : b 0 i * X i i * b 0 i = b 0 i ^+ 2 * X i i by ring.
by have /andP [] := ineq i.
Qed.

Corollary covariance_bound m n (s : F) (H : 'M_n) (L Z : 'M_(m, n)) (b tau w u c f : 'rV[F]_n) (R : 'M[F]_n) :
  posdef R -> norm_le s Z -> 0 <= s -> (forall i, invmx R i i <= tau 0 i) ->
  psd (H + diag_mx (w - u) - L^T *m L) ->
  (forall i, w 0 i * R i i <= w 0 i * c 0 i) -> (forall i, u 0 i * f 0 i <= u 0 i * R i i) ->
  (inner (L *m diag_mx b) Z) ^+ 2
    <= s * (\sum_i b 0 i ^+ 2 * tau 0 i) * (\tr (H *m R) + \sum_i (w 0 i * c 0 i - u 0 i * f 0 i)).
Proof.
move=> pR nZ s0 h hL hw hu; rewrite -{1}[R]invmxK; apply: node_bound => //; first exact: posdef_inv.
  by move=> i; rewrite invmxK; apply: hw.
by move=> i; rewrite invmxK; apply: hu.
Qed.
End Bound.
Print Assumptions covariance_bound.
