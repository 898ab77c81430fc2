(* Quadratic forms over any ordered field, and the inequality of Cauchy and Schwarz for them.

   quad T x      x^T T x
   psd T         x^T T x >= 0 for every x (T need not be symmetric)
   posdef X      X is symmetric, and x^T X x > 0 for every x other than 0
   inner A B     the sum of products of entries, <A, B>
   norm_le s Z   |Z x|^2 <= s |x|^2 for every x: the squared spectral norm is at most s

   Proved: a positive definite matrix has an inverse, which is positive definite; <U, X V>^2 <= <U, X U> <V, X V>
   for X >= 0; and tr(X T) >= 0 where X is positive definite and T semidefinite, without square roots. *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Quadratic.
Variable F : realFieldType.
Implicit Types m n p : nat.

Definition quad n (T : 'M[F]_n) (x : 'cV[F]_n) : F := (x^T *m T *m x) 0 0.
Definition psd n (T : 'M[F]_n) := forall x, 0 <= quad T x.
Definition posdef n (X : 'M[F]_n) := X^T = X /\ forall x, x != 0 -> 0 < quad X x.
Definition inner m n (A B : 'M[F]_(m, n)) : F := \tr (A^T *m B).
Definition norm_le m n (s : F) (Z : 'M[F]_(m, n)) := forall x : 'cV_n, quad 1%:M (Z *m x) <= s * quad 1%:M x.

Lemma trace1 (A : 'M[F]_1) : \tr A = A 0 0.
Proof. by rewrite /mxtrace big_ord1. Qed.

Lemma quad_sum n (T : 'M[F]_n) x : quad T x = \sum_i \sum_j T i j * (x i 0 * x j 0).
Proof.
rewrite /quad mxE exchange_big; apply: eq_bigr => j _; rewrite mxE big_distrl; apply: eq_bigr => i _ /=.
by rewrite !mxE; ring.
Qed.

Lemma quadD n (S T : 'M[F]_n) x : quad (S + T) x = quad S x + quad T x.
Proof. by rewrite /quad mulmxDr mulmxDl mxE. Qed.

Lemma quadN n (T : 'M[F]_n) x : quad (- T) x = - quad T x.
Proof. by rewrite /quad mulmxN mulNmx mxE. Qed.

Lemma quad_scalar n (k : F) (x : 'cV[F]_n) : quad k%:M x = k * quad 1%:M x.
Proof. by rewrite /quad mulmx1 mul_mx_scalar -scalemxAl mxE. Qed.

Lemma quad_congr m n (E : 'M[F]_(m, n)) (T : 'M[F]_m) x : quad (E^T *m T *m E) x = quad T (E *m x).
Proof. by rewrite /quad trmx_mul !mulmxA. Qed.

Lemma quad1 n (x : 'cV[F]_n) : quad 1%:M x = \sum_i x i 0 ^+ 2.
Proof. by rewrite /quad mulmx1 mxE; apply: eq_bigr => i _; rewrite !mxE. Qed.

Lemma psd1 n : psd (1%:M : 'M[F]_n).
Proof. by move=> x; rewrite quad1; apply: sumr_ge0 => j _; apply: sqr_ge0. Qed.

Lemma quad1_gt0 n (x : 'cV[F]_n) : x != 0 -> 0 < quad 1%:M x.
Proof.
move=> x0; rewrite lt_def psd1 andbT; apply: contra x0; rewrite quad1 => /eqP e; apply/eqP/matrixP => i j.
rewrite ord1 mxE; have /eqP := @psumr_eq0P _ _ predT (fun k => x k 0 ^+ 2) (fun k _ => sqr_ge0 _) e i isT.
by rewrite sqrf_eq0 => /eqP.
Qed.

Lemma posdef_psd n (X : 'M[F]_n) : posdef X -> psd X.
Proof.
move=> [_ pX] x; have [->|/pX/ltW //] := eqVneq x 0.
by rewrite /quad mulmx0 mxE.
Qed.

Lemma psd_congr m n (E : 'M[F]_(m, n)) (T : 'M[F]_m) : psd T -> psd (E^T *m T *m E).
Proof. by move=> pT x; rewrite quad_congr; apply: pT. Qed.

Lemma trace_quad m n (X : 'M[F]_m) (U : 'M[F]_(m, n)) : \tr (U^T *m X *m U) = \sum_j quad X (col j U).
Proof.
apply: eq_bigr => j _; rewrite /quad !mxE; apply: eq_bigr => k _.
rewrite !mxE; congr (_ * _); by apply: eq_bigr => i _; rewrite !mxE.
Qed.

Lemma trace_psd m n (X : 'M[F]_m) (U : 'M[F]_(m, n)) : psd X -> 0 <= \tr (U^T *m X *m U).
Proof. by move=> pX; rewrite trace_quad; apply: sumr_ge0. Qed.

Lemma posdef_unit n (X : 'M[F]_n) : posdef X -> X \in unitmx.
Proof.
move=> [_ pX]; rewrite -row_free_unit -kermx_eq0; apply: contraT => /rowV0Pn [x].
move=> /sub_kermxP xX x0; have := pX x^T.
by rewrite /quad trmxK xX mul0mx mxE ltxx trmx_eq0 => /(_ x0).
Qed.

Lemma posdef_inv n (X : 'M[F]_n) : posdef X -> posdef (invmx X).
Proof.
move=> pX; have uX := posdef_unit pX; case: (pX) => sX qX; split; first by rewrite trmx_inv sX.
move=> x x0; have -> : quad (invmx X) x = quad X (invmx X *m x).
  by rewrite -quad_congr trmx_inv sX mulVmx // mul1mx.
by apply: qX; apply: contra x0 => /eqP e; rewrite -[x](mulKVmx uX) e mulmx0.
Qed.

(* --- Cauchy and Schwarz -------------------------------------------------------------------------------- *)

Lemma discriminant (a b c : F) : 0 <= a -> 0 <= b -> (forall t, 0 <= a + t * c *+ 2 + t ^+ 2 * b) -> c ^+ 2 <= a * b.
Proof.
move=> a0 b0 h; have [b1|b1] := eqVneq b 0.
  have [->|c0] := eqVneq c 0; first by rewrite expr0n mulr_ge0.
  have := h (- (a + 1) / (c *+ 2)); rewrite b1.
  have -> : a + - (a + 1) / (c *+ 2) * c *+ 2 + (- (a + 1) / (c *+ 2)) ^+ 2 * 0 = -1 by field; rewrite c0.
  by rewrite oppr_ge0 ler10.
have bp : 0 < b by rewrite lt_def b1.
rewrite -subr_ge0.
have -> : a * b - c ^+ 2 = b * (a + (- c / b) * c *+ 2 + (- c / b) ^+ 2 * b) by field.
by apply: mulr_ge0.
Qed.

Lemma cauchy_schwarz m n (X : 'M[F]_m) (U V : 'M[F]_(m, n)) : X^T = X -> psd X ->
  (\tr (U^T *m X *m V)) ^+ 2 <= \tr (U^T *m X *m U) * \tr (V^T *m X *m V).
Proof.
move=> sX pX; apply: discriminant; try exact: trace_psd.
move=> t; have := trace_psd (U + t *: V) pX.
have e : \tr (V^T *m X *m U) = \tr (U^T *m X *m V) by rewrite -mxtrace_tr !trmx_mul trmxK sX mulmxA.
have -> : (U + t *: V)^T = U^T + t *: V^T by rewrite linearD linearZ.
rewrite !mulmxDl !mulmxDr -!scalemxAl -!scalemxAr !mxtraceD !mxtraceZ e.
by congr (_ <= _); ring.
Qed.

Lemma cauchy_schwarz_vectors n (x y : 'cV[F]_n) : ((x^T *m y) 0 0) ^+ 2 <= quad 1%:M x * quad 1%:M y.
Proof. by have := cauchy_schwarz x y (trmx1 _ _) (@psd1 n); rewrite !trace1 /quad !mulmx1. Qed.

(* --- the trace of a product ---------------------------------------------------------------------------- *)

(* By induction on the size: one step of elimination, X = E^T D E with D of blocks a > 0 and S > 0. *)
Lemma trace_posdef_psd n (X T : 'M[F]_n) : posdef X -> psd T -> 0 <= \tr (X *m T).
Proof.
elim: n X T => [|n IH] X T [sX pX] pT; first by rewrite /mxtrace big_ord0.
rewrite -[n.+1]/(1 + n)%N in X T sX pX pT *.
pose a := X 0 0; pose r : 'rV_n := ursubmx X; pose k := a^-1.
have ea : ulsubmx X = a%:M by rewrite [LHS]mx11_scalar !mxE !lshift0.
have er : dlsubmx X = r^T by rewrite /r -{1}sX trmx_ursub.
have a0 : 0 < a.
  have := pX (col_mx 1%:M 0); rewrite /quad -[X]submxK ea er -/r.
  rewrite tr_col_mx mul_row_block mul_row_col !trmx1 !trmx0 !mul1mx !mul0mx !mulmx0 !addr0 mulmx1.
  rewrite mxE eqxx; apply; apply/eqP => /(congr1 usubmx); rewrite col_mxKu => /matrixP /(_ 0 0).
  by rewrite usubmxEsub !mxE; apply/eqP/oner_neq0.
pose S : 'M_n := drsubmx X - k *: (r^T *m r).
pose E : 'M_(1 + n) := block_mx 1%:M (k *: r) 0 1%:M.
pose D : 'M_(1 + n) := block_mx a%:M 0 0 S.
have eX : X = E^T *m D *m E.
  rewrite -[LHS]submxK ea er -/r /E /D tr_block_mx !mulmx_block !trmx1 !trmx0.
  rewrite !(mul1mx, mulmx1, mul0mx, mulmx0, addr0, add0r, linear0) !linearZ /=.
  have ka : k * a = 1 by rewrite /k mulVf ?gt_eqF.
  rewrite mul_scalar_mx mul_mx_scalar !scalerA ka [a * k]mulrC ka !scale1r.
  by rewrite /S addrC subrK.
have symS : S^T = S.
  by rewrite /S linearB linearZ /= trmx_mul trmxK; congr (_ - _); rewrite -{2}sX trmx_drsub.
have quadS (y : 'cV_n) : quad S y = quad X (col_mx (- (k *: r *m y)) y).
  rewrite eX quad_congr; have -> : E *m col_mx (- (k *: r *m y)) y = col_mx 0 y.
    by rewrite /E mul_block_col !(mul1mx, mul0mx, add0r) addNr.
  by rewrite /quad tr_col_mx /D mul_row_block mul_row_col !(mulmx0, mul0mx, trmx0, add0r).
have pS : posdef S.
  split=> // y y0; rewrite quadS; apply: pX; apply: contra y0 => /eqP.
  by move/(congr1 dsubmx); rewrite col_mxKd => ->; rewrite linear0.
have pW : psd (E *m T *m E^T) by rewrite -{1}[E]trmxK; apply: psd_congr.
set W := E *m T *m E^T in pW.
have -> : \tr (X *m T) = \tr (D *m W) by rewrite eX -!mulmxA mxtrace_mulC /W -!mulmxA.
rewrite -[W]submxK /D mulmx_block !mul0mx !(addr0, add0r) mxtrace_block.
rewrite mul_scalar_mx mxtraceZ; apply: addr_ge0.
  apply: mulr_ge0; first exact: ltW.
  have := pW (col_mx 1%:M 0); rewrite /quad -{1}[W]submxK tr_col_mx mul_row_block mul_row_col.
  by rewrite !(trmx1, trmx0, mul1mx, mul0mx, mulmx0, addr0, mulmx1) trace1.
apply: IH => // y; have := pW (col_mx 0 y).
rewrite /quad -{1}[W]submxK tr_col_mx mul_row_block mul_row_col.
by rewrite !(trmx1, trmx0, mul1mx, mul0mx, mulmx0, addr0, add0r, mulmx1).
Qed.
End Quadratic.
