(* What encloses the exponential, of which no more is used than that E(x) = exp(-x) turns sums into products and has
   1 - x <= E(x), two properties that no other function has.

   taylor              E(y) lies between two partial sums of its series, one after the other, for 0 <= y <= 1: the binomial
                       series of (1 - y/n)^n does so for every n, by Pascal's rule, and n may be as large as one likes
   exponential_below   whole numbers that show s exp(-n / d) <= w, by such a sum at n / 2^h d, squared h times *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Riccati.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Exponential.
Variables (R : archiFieldType) (E : R -> R).
Hypothesis E_sum : forall x y, E (x + y) = E x * E y.
Hypothesis E_above : forall x, 1 - x <= E x.

Lemma E0 : E 0 = 1.
Proof.
have := E_above 0; rewrite subr0 => e1; have nz : E 0 != 0 by rewrite gt_eqF // (lt_le_trans ltr01 e1).
by apply: (mulfI nz); rewrite -E_sum addr0 mulr1.
Qed.

Lemma E_opp x : E x * E (- x) = 1. Proof. by rewrite -E_sum subrr E0. Qed.

Lemma E_positive x : 0 < E x.
Proof.
rewrite lt_def; apply/andP; split.
  by apply/eqP => e; have := E_opp x; rewrite e mul0r => /eqP; rewrite eq_sym oner_eq0.
have -> : x = x / 2%:R + x / 2%:R by field.
by rewrite E_sum -expr2 sqr_ge0.
Qed.

Lemma E_most1 x : 0 <= x -> E x <= 1.
Proof.
move=> x0; rewrite -[X in _ <= X](E_opp x) -[X in X <= _]mulr1 ler_pmul2l ?E_positive //.
by apply: le_trans (E_above _); rewrite opprK ler_addl.
Qed.

Lemma E_falls x y : 0 <= x -> x <= y -> E y <= E x.
Proof.
move=> _ xy; rewrite -[y](subrK x) addrC E_sum -[X in _ <= X]mulr1 ler_pmul2l ?E_positive //.
by apply: E_most1; rewrite subr_ge0.
Qed.

Lemma E_power n x : E (n%:R * x) = E x ^+ n.
Proof. by elim: n => [|n IH]; rewrite ?mul0r ?E0 // -addn1 natrD mulrDl mul1r E_sum IH addn1 exprSr. Qed.

(* --- the binomial series ---------------------------------------------------------------------------------------- *)

Definition binomial (t : R) n k := \sum_(j < k.+1) (- t) ^+ j *+ 'C(n, j).
Definition series_sum (y : R) k := \sum_(j < k.+1) (- y) ^+ j / j`!%:R.

Lemma binomial_step t n k : binomial t n.+1 k.+1 = binomial t n k.+1 - t * binomial t n k.
Proof.
rewrite /binomial big_ord_recl [in RHS]big_ord_recl !bin0 -addrA; congr (_ + _).
rewrite mulr_sumr -sumrN -big_split; apply: eq_bigr => j _ /=.
by rewrite /bump !add1n binS mulrnDr; congr (_ + _); rewrite exprS mulNr mulNrn mulrnAr.
Qed.

Lemma alternate t n k : 0 <= t -> t <= 1 -> 0 <= (-1) ^+ k.+1 * ((1 - t) ^+ n - binomial t n k).
Proof.
move=> t0 t1; elim: n k => [|n IH] k.
  by rewrite /binomial big_ord_recl bin0 !expr0 mulr1n big1 ?addr0 ?subrr ?mulr0.
case: k => [|k].
  rewrite /binomial big_ord_recl big_ord0 bin0 !expr0 addr0 expr1 mulN1r opprB subr_ge0 mulr1n.
  by apply: exprn_ile1; rewrite ?subr_ge0 // ler_subl_addr ler_addl.
have -> : (-1) ^+ k.+2 * ((1 - t) ^+ n.+1 - binomial t n.+1 k.+1)
    = (-1) ^+ k.+2 * ((1 - t) ^+ n - binomial t n k.+1) + t * ((-1) ^+ k.+1 * ((1 - t) ^+ n - binomial t n k)).
  rewrite binomial_step !exprS; ring.
by apply: addr_ge0 => //; apply: mulr_ge0.
Qed.

Lemma falling n j : (n ^ j.+1 <= n ^_ j.+1 + j.+1 ^ 2 * n ^ j)%N.
Proof.
elim: j => [|j IH]; first by rewrite expn1 ffactn1 leq_addr.
have le : (n ^_ j.+1 <= n ^ j.+1)%N.
  elim: {IH} j => [|j IH]; first by rewrite ffactn1.
  by rewrite ffactnSr expnSr; apply: leq_mul => //; apply: leq_subr.
rewrite expnSr; apply: leq_trans (leq_mul IH (leqnn n)) _.
rewrite mulnDl -mulnA -expnSr (ffactnSr n j.+1).
apply: (@leq_trans (n ^_ j.+1 * (n - j.+1) + j.+1 * n ^ j.+1 + j.+1 ^ 2 * n ^ j.+1)).
  rewrite leq_add2r; apply: (@leq_trans (n ^_ j.+1 * (n - j.+1 + j.+1))).
    by rewrite leq_mul2l addnC -leq_subLR leqnn orbT.
  by rewrite mulnDr leq_add2l mulnC leq_mul2l le orbT.
rewrite -addnA leq_add2l -mulnDl leq_mul2r; apply/orP; right.
have -> : (j.+1 + j.+1 ^ 2 = j.+1 * j.+2)%N by rewrite -mulnn [in RHS]mulnS.
by rewrite -mulnn leq_mul2r leqnSn orbT.
Qed.

(* n may be as large as one likes. *)
Lemma limit (a b c : R) : (forall n, (0 < n)%N -> a <= b + c / n%:R) -> a <= b.
Proof.
move=> h; rewrite leNgt; apply/negP => ba; have d0 : 0 < a - b by rewrite subr_gt0.
have c0 : 0 < c.
  rewrite ltNge; apply/negP => c0; have := h 1%N isT; rewrite divr1 => /le_trans /(_ (ler_add (lexx b) c0)).
  by rewrite addr0 leNgt ba.
pose n := Num.bound (c / (a - b)); have := archi_boundP (ltW (divr_gt0 c0 d0)); rewrite -/n => big.
have n0 : 0 < n%:R :> R by apply: lt_trans big; apply: divr_gt0.
have := h n; rewrite -(ltr0n R) n0 => /(_ isT); rewrite -ler_subl_addl leNgt ltr_pdivr_mulr //.
by move: big; rewrite ltr_pdivr_mulr // mulrC => ->.
Qed.

Definition most k : R := \sum_(j < k.+1) j%:R ^+ 2.

Lemma near_series y n k : 0 <= y -> y <= 1 -> (0 < n)%N -> `|binomial (y / n%:R) n k - series_sum y k| <= most k / n%:R.
Proof.
move=> y0 y1 n0; have nR : 0 < n%:R :> R by rewrite ltr0n.
rewrite /binomial /series_sum /most -sumrB mulr_suml; apply: le_trans (ler_norm_sum _ _ _) _.
apply: ler_sum => -[j /= _] _; have f0 : 0 < j`!%:R :> R by rewrite ltr0n fact_gt0.
have pj : 0 < n%:R ^+ j :> R by rewrite exprn_gt0.
have e : (- (y / n%:R)) ^+ j *+ 'C(n, j) - (- y) ^+ j / j`!%:R
    = (- y) ^+ j / j`!%:R * (((n ^_ j)%:R - n%:R ^+ j) / n%:R ^+ j).
  rewrite -mulNr expr_div_n -mulr_natr -bin_ffact natrM.
  move: ((- y) ^+ j) (n%:R ^+ j) pj ('C(n, j)%:R) (j`!%:R) f0 => A N N0 C f f0; field; by rewrite !gt_eqF.
rewrite e normrM -[X in _ <= X]mul1r; apply: ler_pmul; rewrite ?normr_ge0 //.
  rewrite normrM normfV normrX normrN (ger0_norm y0) (gtr0_norm f0) ler_pdivr_mulr // mul1r.
  apply: le_trans (exprn_ile1 _ y0 y1) _; by rewrite ler1n fact_gt0.
rewrite normrM normfV (gtr0_norm pj) ler_pdivr_mulr // distrC.
clear e f0; case: j pj => [|j] pj; first by rewrite ffactn0 expr0 subrr normr0 expr0n /= mul0r mul0r.
have le : (n ^_ j.+1 <= n ^ j.+1)%N.
  elim: {pj} j => [|j IH]; first by rewrite ffactn1.
  by rewrite ffactnSr expnSr; apply: leq_mul => //; apply: leq_subr.
have -> : j.+1%:R ^+ 2 / n%:R * n%:R ^+ j.+1 = (j.+1 ^ 2 * n ^ j)%:R :> R.
  by rewrite natrM !natrX (exprS n%:R) mulrA divfK ?gt_eqF.
by rewrite -natrX -natrB // ger0_norm ?ler0n // ler_nat leq_subLR; apply: falling.
Qed.

Lemma bernoulli (u : R) n : 0 <= u -> u <= 1 -> 1 - n%:R * u <= (1 - u) ^+ n.
Proof.
move=> u0 u1; elim: n => [|n IH]; first by rewrite mul0r subr0 expr0.
have v0 : 0 <= 1 - u by rewrite subr_ge0.
rewrite exprSr; apply: le_trans (ler_wpmul2r v0 IH).
have -> : (1 - n%:R * u) * (1 - u) = 1 - n.+1%:R * u + n%:R * u ^+ 2 by rewrite -addn1 natrD; ring.
by rewrite ler_addl mulr_ge0 ?ler0n ?sqr_ge0.
Qed.

Theorem taylor y k : 0 <= y -> y <= 1 -> 0 <= (-1) ^+ k.+1 * (E y - series_sum y k).
Proof.
move=> y0 y1; rewrite mulrBr subr_ge0; apply: (@limit _ _ (most k + 1)) => n n0.
have nR : 0 < n%:R :> R by rewrite ltr0n.
pose t := y / n%:R; have t0 : 0 <= t by rewrite divr_ge0 // ltW.
have t1 : t <= 1 by rewrite ler_pdivr_mulr // mul1r; apply: le_trans y1 _; rewrite ler1n.
have eE : E y = E t ^+ n by rewrite -E_power /t mulrC divfK // gt_eqF.
have u0 : 0 <= 1 - t by rewrite subr_ge0.
have low : (1 - t) ^+ n <= E y by rewrite eE; apply: ler_expn2r; rewrite ?nnegrE ?E_above // ltW // E_positive.
have high : E y <= (1 - t) ^+ n + 1 / n%:R.
  have ut : E t * (1 + t) <= 1.
    rewrite -[X in _ <= X](E_opp t) ler_pmul2l ?E_positive //; apply: le_trans (E_above _); by rewrite opprK.
  have pw : E y * (1 + t) ^+ n <= 1.
    rewrite eE -exprMn; apply: exprn_ile1 => //; apply: mulr_ge0; [exact/ltW/E_positive | exact: addr_ge0].
  have q0 : 0 <= (1 - t) ^+ n by apply: exprn_ge0.
  have := ler_wpmul2r q0 pw; rewrite mul1r -mulrA -exprMn (_ : (1 + t) * (1 - t) = 1 - t ^+ 2); last by ring.
  move=> less; have b : 1 - n%:R * t ^+ 2 <= (1 - t ^+ 2) ^+ n.
    by apply: bernoulli; rewrite ?sqr_ge0 // exprn_ile1.
  have Ey0 : 0 <= E y by apply/ltW/E_positive.
  have := le_trans (ler_wpmul2l Ey0 b) less; rewrite mulrBr mulr1 ler_subl_addr => h; apply: le_trans h _.
  rewrite mul1r ler_add2l; have -> : n%:R * t ^+ 2 = y ^+ 2 / n%:R by rewrite /t; field; rewrite gt_eqF.
  rewrite mulrA -[X in _ <= X]mul1r ler_pmul2r ?invr_gt0 // mulr_ile1 ?sqr_ge0 ?E_most1 // exprn_ile1 //.
have := near_series k y0 y1 n0; rewrite -/t ler_norml => /andP [near0 near1].
have := alternate n k t0 t1; have l1 : 0 <= 1 / n%:R :> R by rewrite divr_ge0 ?ler01 ?ler0n.
rewrite mulrDl; move: (most k / _) (1 / _) l1 near0 near1 low high => c d d0.
move: (binomial _ _ _) (series_sum _ _) (_ ^+ n) (E y) => B S P X near0 near1 low high.
rewrite -signr_odd; case: (odd _); rewrite ?expr0 ?expr1 ?mulN1r ?mul1r.
  rewrite oppr_ge0 subr_le0 => al; rewrite ler_oppl opprD opprK ler_subl_addr addrA.
  by apply: le_trans high _; rewrite ler_add2r; apply: le_trans al _; rewrite -ler_subl_addl.
rewrite subr_ge0 => al; apply: le_trans (_ : S <= B + c) _; first by rewrite -ler_subl_addr addrC -ler_subr_addr.
by rewrite addrA; apply: ler_paddr d0 _; rewrite ler_add2r; apply: le_trans al low.
Qed.

(* --- in integers ------------------------------------------------------------------------------------------------ *)

Lemma zr_of_nat k : zr R (Z.of_nat k) = k%:R.
Proof. by elim: k => // k IH; rewrite Nat2Z.inj_succ -Z.add_1_r zrD IH -[k.+1]addn1 natrD. Qed.

(* Numerator and denominator of a partial sum of the series at n / m, and a power of -n. *)
Fixpoint partial k (n m : Z) : Z * Z * Z :=
  if k is j.+1 then
    let: (num, den, power) := partial j n m in let c := Z.mul (Z.add (Z.of_nat j) (Zpos xH)) m in let power' := Z.mul power (Z.opp n) in
    (Z.add (Z.mul num c) power', Z.mul den c, power')
  else (Zpos xH, Zpos xH, Zpos xH).
Fixpoint squares h a := if h is m.+1 then squares m (Z.mul a a) else a.

Lemma squaresE h a : zr R (squares h a) = zr R a ^+ (2 ^ h).
Proof. by elim: h a => [|h IH] a; rewrite ?expr1 //= IH zrM -expr2 -exprM expnS. Qed.

Lemma partialE k n m : Z.ltb Z0 m -> let: (num, den, power) := partial k n m in
  [/\ 0 < zr R den, zr R power / zr R den = (- (zr R n / zr R m)) ^+ k / k`!%:R &
      zr R num / zr R den = series_sum (zr R n / zr R m) k].
Proof.
move=> /(zr_gt0 R) m0; have z1 : zr R (Zpos xH) = 1 by [].
elim: k => [|k] /=.
  by split; rewrite ?z1 ?ltr01 // /series_sum ?big_ord_recl ?big_ord0 /= ?fact0 ?expr0 ?mulr1n ?divr1 ?addr0.
case: (partial k n m) => [[num den] power] [d0 hp hn].
have k0 : 0 < k.+1%:R :> R by rewrite ltr0n.
have kE : zr R (Z.add (Z.of_nat k) (Zpos xH)) = k.+1%:R by rewrite zrD zr_of_nat z1 -[k.+1]addn1 natrD.
have f0 : 0 < k`!%:R :> R by rewrite ltr0n fact_gt0.
rewrite zrD !zrM zrN kE.
have p1 : zr R power * - zr R n / (zr R den * (k.+1%:R * zr R m)) = (- (zr R n / zr R m)) ^+ k.+1 / k.+1`!%:R.
  rewrite exprSr factS natrM; have -> : (- (zr R n / zr R m)) ^+ k = zr R power / zr R den * k`!%:R.
    by rewrite hp divfK ?gt_eqF.
  by move: (k`!%:R) f0 (k.+1%:R) k0 => f f0 c c0; field; rewrite !gt_eqF.
split=> //; first by rewrite !mulr_gt0.
rewrite mulrDl p1 /series_sum big_ord_recr /= -/(series_sum _ _) -hn; congr (_ + _).
by move: (k.+1%:R) k0 => c c0; field; rewrite !gt_eqF.
Qed.

(* Whole numbers that show s exp(-n / d) <= w: a partial sum at n / 2^h d, squared h times. *)
Definition shows h k s n d w := let: (num, den, _) := partial k n (Z.mul d (Z.of_nat (2 ^ h))) in
  [&& Z.ltb Z0 d, Z.leb Z0 n, Z.leb n (Z.mul d (Z.of_nat (2 ^ h))), Z.leb Z0 s, ~~ odd k &
      Z.leb (Z.mul s (squares h num)) (Z.mul w (squares h den))].

Theorem exponential_below h k s n d w : shows h k s n d w -> zr R s * E (zr R n / zr R d) <= zr R w.
Proof.
rewrite /shows; set m := Z.mul d _; move: (@partialE k n m); case: (partial k n m) => [[num den] power] hp.
case/and5P => d0 /(zr_le R) n0 /(zr_le R) nm /(zr_le R) s0 /andP [ek /(zr_le R)]; rewrite !zrM !squaresE => less.
have h0 : 0 < (2 ^ h)%:R :> R by rewrite ltr0n expn_gt0.
have dR := zr_gt0 R d0; have mE : zr R m = zr R d * (2 ^ h)%:R by rewrite zrM zr_of_nat.
have m0 : Z.ltb Z0 m by rewrite /m; apply/Z.ltb_lt/Z.mul_pos_pos; [exact/Z.ltb_lt | by move: (expn_gt0 2 h); case: (2 ^ h)%N].
have [den0 _ hn] := hp m0; have mR : 0 < zr R m by rewrite mE mulr_gt0.
set y := zr R n / zr R m in hn.
have y0 : 0 <= y by rewrite divr_ge0 // ltW.
have y1 : y <= 1 by rewrite ler_pdivr_mulr // mul1r.
have := taylor k y0 y1; rewrite exprS -signr_odd (negPf ek) expr0 mulr1 mulN1r oppr_ge0 subr_le0 -hn => below.
have -> : zr R n / zr R d = (2 ^ h)%:R * y by rewrite /y mE; field; rewrite !gt_eqF.
have t0 : 0 < zr R den ^+ (2 ^ h) by rewrite exprn_gt0.
rewrite E_power -(ler_pmul2r t0); apply: le_trans less; rewrite -mulrA; apply: ler_wpmul2l => //.
rewrite -exprMn; apply: ler_expn2r; rewrite ?nnegrE.
- by rewrite mulr_ge0 // ltW // E_positive.
- by apply: le_trans (_ : E y * zr R den <= _); rewrite ?mulr_ge0 -?ler_pdivl_mulr // ltW // E_positive.
by rewrite -ler_pdivl_mulr.
Qed.
End Exponential.
Print Assumptions taylor.
Print Assumptions exponential_below.
