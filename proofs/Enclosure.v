(* What finitely many sums, products and comparisons prove of a matrix; no eigenvalue is taken.

   rows_le F f     every row of F has a sum of absolute values of at most f
   dominant E      no row of E has more off its diagonal than on it
   near_posdef     R > 0 where R is symmetric and the rows of K I - M R M^T are below f < K
   near_inverse    then (K - f) [R^-1]_ii <= the sum of the squares of column i of M
   near_norm       |Z|^2 <= s + e where the rows of s I - Z^T Z are at most e; of the transpose that is enough, too
   dominant_psd    E >= 0 where E is symmetric and dominant *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Require Import Quadratic.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Enclosure.
Variable F : realFieldType.
Implicit Types m n : nat.

Definition rows_le n (E : 'M[F]_n) f := forall i, \sum_j `|E i j| <= f.
Definition dominant n (E : 'M[F]_n) := forall i, \sum_j `|E i j| <= E i i + E i i.

(* Gershgorin, with a bound of its own for every row. *)
Lemma row_sums n (E : 'M[F]_n) (x : 'cV_n) : E^T = E -> `|quad E x| <= \sum_i (\sum_j `|E i j|) * x i 0 ^+ 2.
Proof.
move=> sE; rewrite -(ler_pmul2l (ltr0n _ 2)).
have flip : \sum_i \sum_j `|E i j| * x j 0 ^+ 2 = \sum_i (\sum_j `|E i j|) * x i 0 ^+ 2.
  rewrite exchange_big; apply: eq_bigr => i _; rewrite mulr_suml; apply: eq_bigr => j _.
  by rewrite -{1}sE mxE.
rewrite [X in _ <= X]mulr_natl [X in _ <= X]mulr2n -{2}flip -big_split quad_sum.
apply: le_trans (_ : _ <= 2%:R * \sum_i \sum_j `|E i j * (x i 0 * x j 0)|) _.
  rewrite ler_pmul2l ?ltr0n //; apply: le_trans (ler_norm_sum _ _ _) _.
  by apply: ler_sum => i _; apply: ler_norm_sum.
rewrite mulr_sumr; apply: ler_sum => i _ /=.
rewrite mulr_suml -big_split mulr_sumr; apply: ler_sum => j _ /=.
rewrite -mulrDr normrM mulrCA; apply: ler_wpmul2l => //.
set p := x i 0; set q := x j 0; rewrite -[2%:R]ger0_norm ?ler0n // -normrM ler_norml -subr_ge0 opprK.
rewrite -[X in _ && X]subr_ge0.
have -> : 2%:R * (p * q) + (p ^+ 2 + q ^+ 2) = (p + q) ^+ 2 by ring.
have -> : p ^+ 2 + q ^+ 2 - 2%:R * (p * q) = (p - q) ^+ 2 by ring.
by rewrite !sqr_ge0.
Qed.

Lemma rows_quad n (E : 'M[F]_n) f x : E^T = E -> rows_le E f -> `|quad E x| <= f * quad 1%:M x.
Proof.
move=> sE h; apply: le_trans (row_sums x sE) _; rewrite quad1 mulr_sumr.
by apply: ler_sum => i _; apply: ler_wpmul2r (h i); apply: sqr_ge0.
Qed.

Lemma dominant_psd n (E : 'M[F]_n) : E^T = E -> dominant E -> psd E.
Proof.
move=> sE h x; pose D := diag_mx (\row_i E i i); pose O := E - D.
have sO : O^T = O by rewrite /O linearB /= sE tr_diag_mx.
have off i : \sum_j `|O i j| <= E i i.
  rewrite (bigD1 i) //= !mxE eqxx subrr normr0 add0r -(ler_add2l `|E i i|).
  apply: le_trans (le_trans (h i) _); last by rewrite ler_add2r ler_norm.
  rewrite [X in _ <= X](bigD1 i) //= ler_add2l; apply: ler_sum => j ij.
  by rewrite !mxE eq_sym (negPf ij) mulr0n subr0.
have -> : E = D + O by rewrite /O addrC subrK.
rewrite quadD -[quad O x]opprK subr_ge0; apply: le_trans (ler_norm _) _; rewrite normrN.
apply: le_trans (row_sums x sO) _; rewrite quad_sum; apply: ler_sum => i _.
rewrite [X in _ <= X](bigD1 i) //= [X in _ + X]big1 ?addr0 => [|j ij]; last first.
  by rewrite !mxE eq_sym (negPf ij) mulr0n mul0r.
by rewrite !mxE eqxx mulr1n -expr2; apply: ler_wpmul2r (off i); apply: sqr_ge0.
Qed.

Lemma near_scalar n (G : 'M[F]_n) (K f : F) x : G^T = G -> rows_le (K%:M - G) f ->
  (K - f) * quad 1%:M x <= quad G x <= (K + f) * quad 1%:M x.
Proof.
move=> sG h; have sE : (K%:M - G)^T = K%:M - G by rewrite linearB /= tr_scalar_mx sG.
have := rows_quad x sE h; rewrite quadD quadN quad_scalar distrC ler_distl mulrBl mulrDl => /andP [h0 h1].
by rewrite h0 h1.
Qed.

Lemma near_norm n m (Z : 'M[F]_(m, n)) (s e : F) : rows_le (s%:M - Z^T *m Z) e -> norm_le (s + e) Z.
Proof.
move=> h x; have sG : (Z^T *m Z)^T = Z^T *m Z by rewrite trmx_mul trmxK.
by have /andP [_] := near_scalar x sG h; rewrite -{1}[Z^T]mulmx1 quad_congr.
Qed.

Lemma norm_le_tr m n (Z : 'M[F]_(m, n)) (s : F) : 0 <= s -> norm_le s Z^T -> norm_le s Z.
Proof.
move=> s0 h x; set y := Z *m x; have nx : 0 <= quad 1%:M x := @psd1 F n x.
have [->|yn] := eqVneq (quad 1%:M y) 0; first exact: mulr_ge0.
have yp : 0 < quad 1%:M y by rewrite lt_def yn psd1.
have e : (x^T *m (Z^T *m y)) 0 0 = quad 1%:M y by rewrite /quad mulmx1 mulmxA -trmx_mul.
have := cauchy_schwarz_vectors x (Z^T *m y); rewrite e => cs.
rewrite -(ler_pmul2r yp) -expr2; apply: le_trans cs _.
by apply: le_trans (ler_wpmul2l nx (h y)) _; rewrite mulrCA mulrA.
Qed.

Section Inverse.
Variables (n : nat) (R M : 'M[F]_n) (K f : F).
Hypotheses (sR : R^T = R) (fK : f < K) (h : rows_le (K%:M - M *m R *m M^T) f).
Let G := M *m R *m M^T.

Lemma symG : G^T = G.
Proof. by rewrite /G !trmx_mul trmxK sR mulmxA. Qed.

Lemma posG : posdef G.
Proof.
split=> [|x x0]; first exact: symG.
have /andP [h0 _] := near_scalar x symG h; apply: lt_le_trans h0.
by rewrite mulr_gt0 ?subr_gt0 ?quad1_gt0.
Qed.

Lemma unitM : M \in unitmx.
Proof. by have := posdef_unit posG; rewrite /G unitmx_mul => /andP[]; rewrite unitmx_mul => /andP[]. Qed.

Lemma near_posdef : posdef R.
Proof.
split=> // x x0; have uMT : M^T \in unitmx by rewrite unitmx_tr unitM.
have e : x = M^T *m (invmx M^T *m x) by rewrite mulKVmx.
rewrite e -quad_congr trmxK; apply: posG.2; apply: contra x0 => /eqP z; by rewrite e z mulmx0.
Qed.

Lemma near_inverse i : (K - f) * invmx R i i <= \sum_k M k i ^+ 2.
Proof.
have uM := unitM; have uR := posdef_unit near_posdef; have uG := posdef_unit posG.
pose y : 'cV_n := col i M; pose z := invmx G *m y.
have e : invmx R i i = (y^T *m z) 0 0.
  have -> : invmx R = M^T *m invmx G *m M.
    have uMT : M^T \in unitmx by rewrite unitmx_tr.
    apply: (can_inj (mulKmx uR)); rewrite mulmxV //; apply/esym.
    apply: (can_inj (mulKmx uM)); rewrite mulmx1 !mulmxA -/G mulmxV //.
    by rewrite mul1mx.
  rewrite /z /y !mulmxA !mxE; apply: eq_bigr => k _; rewrite !mxE; congr (_ * _).
  by apply: eq_bigr => l _; rewrite !mxE.
have zz : (K - f) * quad 1%:M z <= (y^T *m z) 0 0.
  have /andP [h0 _] := near_scalar z symG h; apply: le_trans h0 _.
  by rewrite /quad {1}/z trmx_mul trmx_inv symG mulmxKV.
have -> : \sum_k M k i ^+ 2 = quad 1%:M y by rewrite quad1; apply: eq_bigr => k _; rewrite mxE.
have cs := cauchy_schwarz_vectors y z; rewrite e; set v := _ 0 0 in zz cs *.
have d : 0 < K - f by rewrite subr_gt0.
have v0 : 0 <= v by apply: le_trans zz; apply: mulr_ge0; [exact: ltW|exact: psd1].
have [->|vn] := eqVneq v 0; first by rewrite mulr0; apply: psd1.
have vp : 0 < v by rewrite lt_def vn.
rewrite -(ler_pmul2r vp) -mulrA -expr2.
apply: le_trans (_ : _ <= (K - f) * (quad 1%:M y * quad 1%:M z)) _; first by rewrite ler_pmul2l.
rewrite mulrCA; apply: ler_wpmul2l => //; exact: psd1.
Qed.
End Inverse.
End Enclosure.
