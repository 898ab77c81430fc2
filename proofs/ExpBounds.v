(* The enclosure of the exponential by which the integer sampler decides
   (noisedesign.noise.discrete_gaussian.exp_bounds): of E(x) = exp(-x), as Exponential.v takes it, both whole numbers
   that it returns are on their sides of 2^bits E(n / d), for all n >= 0, d > 0 and bits >= 0.

   series_near        terms cut to whole numbers err by at most 4 each, and what is summed by 4 for each of them
   squared_around     squares that are rounded outwards keep E(2 x) between them
   exp_bounds_holds   the bounds hold *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Riccati Exponential.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

(* As the code has it. A term is below 2^(places - count), so that the loop ends before its fuel. *)
Section Code.
Local Open Scope Z_scope.
Definition bit_length z := if z <=? 0 then 0 else Z.log2 z + 1.

Fixpoint series fuel (count term total y places : Z) : Z * Z :=
  if fuel is f.+1 then if term =? 0 then (count, total) else
    let next := Z.div (Z.shiftr (term * y) places) (count + 1) in
    series f (count + 1) next (if Z.odd (count + 1) then total - next else total + next) y places
  else (count, total).

Fixpoint squared times (low high places : Z) : Z * Z :=
  if times is m.+1 then squared m (Z.shiftr (low * low) places) (Z.shiftr (high * high) places + 1) places
  else (low, high).

Definition exp_bounds (n d bits : Z) : Z * Z :=
  if n =? 0 then (2 ^ bits, 2 ^ bits) else
  let halvings := bit_length (2 * n / d) in let places := bits + halvings + 16 in
  let y := Z.div (n * 2 ^ places) (d * 2 ^ halvings) in
  let: (count, total) := series (Z.to_nat places + 2) 0 (2 ^ places) (2 ^ places) y places in
  let slack := 4 * count + 16 in
  let: (low, high) := squared (Z.to_nat halvings) (total - slack) (total + slack) places in
  (Z.shiftr low (places - bits), Z.shiftr high (places - bits) + 1).
End Code.

Local Open Scope ring_scope.
Section Holds.
Variables (R : archiFieldType) (E : R -> R).
Hypothesis E_sum : forall x y, E (x + y) = E x * E y.
Hypothesis E_above : forall x, 1 - x <= E x.
Local Notation zr := (zr R).

Lemma zr_lt a b : Z.lt a b -> zr a < zr b.
Proof. by move=> ab; rewrite -subr_gt0 -zrB; apply/zr_gt0/Z.ltb_lt/Z.lt_0_sub. Qed.

Lemma zr_leq a b : Z.le a b -> zr a <= zr b.
Proof. by move/Z.leb_le/zr_le. Qed.

Lemma zr0 : zr 0 = 0. Proof. by []. Qed.

Lemma floor a b : Z.lt 0 b -> zr (Z.div a b) * zr b <= zr a < (zr (Z.div a b) + 1) * zr b.
Proof.
move=> b0; rewrite -[1]/(zr 1) -zrD -!zrM; apply/andP; split; [apply: zr_leq | apply: zr_lt].
  by rewrite Z.mul_comm; exact: (Z.mul_div_le a b b0).
by rewrite Z.mul_comm -/(Z.succ _); apply: Z.mul_succ_div_gt.
Qed.

Lemma two_pos k : Z.le 0 k -> Z.lt 0 (2 ^ k).
Proof. exact: Z.pow_pos_nonneg. Qed.

Lemma zr_two k : Z.le 0 k -> zr (2 ^ k) = 2%:R ^+ Z.to_nat k.
Proof.
move=> k0; rewrite -{1}(Z2Nat.id k) //; elim: (Z.to_nat k) => [|m IH]; first by rewrite expr0.
by rewrite Nat2Z.inj_succ Z.pow_succ_r ?zrM ?IH ?exprS //; apply: Nat2Z.is_nonneg.
Qed.

Lemma odd_of_nat k : Z.odd (Z.of_nat k) = odd k.
Proof. by elim: k => // k IH; rewrite Nat2Z.inj_succ Z.odd_succ -Z.negb_odd IH. Qed.

(* --- the series ----------------------------------------------------------------------------------------------- *)

Section Series.
Variables (places y : Z) (x : R).
Hypothesis places0 : Z.le 0 places.
Let P := zr (2 ^ places).
Hypotheses (x0 : 0 <= x) (x_half : x <= 1 / 2%:R) (y_x : zr y <= x * P < zr y + 1) (y0 : Z.le 0 y).
Let P0 : 0 < P. Proof. by apply/zr_gt0/Z.ltb_lt/two_pos. Qed.
Definition exact_term k := P * (x ^+ k / k`!%:R).

Lemma exact_next k : exact_term k.+1 * k.+1%:R = exact_term k * x.
Proof.
have f0 : 0 < k`!%:R :> R by rewrite ltr0n fact_gt0.
have k0 : 0 < k.+1%:R :> R by rewrite ltr0n.
rewrite /exact_term exprSr factS natrM; move: (k`!%:R) f0 (k.+1%:R) k0 => f f0 e e0; field; by rewrite !gt_eqF.
Qed.

Lemma x_le1 : x <= 1. Proof. by apply: le_trans x_half _; rewrite ler_pdivr_mulr ?ltr0n // mul1r ler1n. Qed.

Lemma exact_ge0 k : 0 <= exact_term k.
Proof. by rewrite mulr_ge0 ?(ltW P0) // divr_ge0 ?exprn_ge0 ?ler0n. Qed.

Lemma exact_falls k : exact_term k.+1 <= exact_term k * (1 / 2%:R).
Proof.
apply: le_trans (ler_wpmul2l (exact_ge0 k) x_half); rewrite -exact_next.
by rewrite ler_pemulr ?exact_ge0 ?ler1n.
Qed.

Lemma exact_small k : exact_term k * 2%:R ^+ k <= P.
Proof.
elim: k => [|k IH]; first by rewrite /exact_term expr0 fact0 divr1 !mulr1.
apply: le_trans IH; rewrite exprS mulrA; apply: ler_wpmul2r; first by rewrite exprn_ge0 ?ler0n.
by have := exact_falls k; rewrite mulrA mulr1 ler_pdivl_mulr ?ltr0n.
Qed.

Lemma exact_most k : exact_term k <= P.
Proof.
by apply: le_trans (exact_small k); rewrite ler_pemulr ?exact_ge0 // -natrX ler1n expn_gt0.
Qed.

Lemma next_term t k (t' := Z.div (Z.shiftr (t * y) places) (Z.of_nat k + 1)) :
  Z.le 0 t -> zr t <= exact_term k <= zr t + 4%:R -> Z.le 0 t' /\ zr t' <= exact_term k.+1 <= zr t' + 4%:R.
Proof.
move=> t0 near; have two : Z.lt 0 (2 ^ places) by apply: two_pos.
have e0 : Z.lt 0 (Z.of_nat k + 1) by apply: Z.add_nonneg_pos => //; apply: Nat2Z.is_nonneg.
have -> : t' = Z.div (t * y) (2 ^ places * (Z.of_nat k + 1)).
  by rewrite /t' Z.shiftr_div_pow2 // Z.div_div // => z; rewrite z in two.
have den0 := Z.mul_pos_pos _ _ two e0; have s0 := Z.div_pos _ _ (Z.mul_nonneg_nonneg _ _ t0 y0) den0.
split=> //; have := floor (t * y) den0; move: (Z.div _ _) s0 => s /zr_leq s0; rewrite !zrM -/P.
have -> : zr (Z.of_nat k + 1) = k.+1%:R by rewrite zrD zr_of_nat -[k.+1]addn1 natrD.
have e1 : 1 <= k.+1%:R :> R by rewrite ler1n.
move: near (exact_next k) (exact_most k) (zr_leq t0) (zr_leq y0) y_x; rewrite -/(zr 0) zr0.
move: (exact_term k.+1) (exact_term k) (k.+1%:R) e1 (zr t) (zr y) => T' T e e1 u v.
move=> /andP [below above] next most u0 v0 /andP [vx xv] /andP [h0 h1].
have ep : 0 < e := lt_le_trans ltr01 e1; have PE : 0 < P * e by apply: mulr_gt0.
have -> : T' = T * x * P / (P * e) by rewrite -next; field; rewrite (gt_eqF P0) (gt_eqF ep).
rewrite ler_pdivl_mulr // ler_pdivr_mulr // -[T * x * P]mulrA; apply/andP; split.
  by apply: le_trans h0 _; apply: ler_pmul.
(* u v >= u (x P - 1), and T x P <= u x P + 4 P / 2 *)
have b1 : u * (x * P) <= u * v + u by rewrite -[X in _ + X]mulr1 -mulrDr; apply: ler_wpmul2l => //; apply: ltW.
have xP : 0 <= x * P by apply: mulr_ge0 => //; apply: ltW.
have b2 : T * (x * P) <= u * (x * P) + 4%:R * (x * P) by rewrite -mulrDl; apply: ler_wpmul2r.
have b3 : 4%:R * (x * P) <= 2%:R * P.
  have -> : 4%:R * (x * P) = x * 4%:R * P by ring.
  apply: ler_wpmul2r; first exact: ltW.
  by apply: le_trans (ler_wpmul2r (ler0n _ 4) x_half) _; rewrite le_eqVlt; apply/orP; left; apply/eqP; field.
have b4 : u <= P by apply: le_trans most.
have b5 : P <= P * e by rewrite ler_pemulr // ltW.
apply: le_trans b2 _; apply: le_trans (ler_add b1 b3) _; apply: le_trans (ler_add (ler_add (ltW h1) b4) (lexx _)) _.
apply: le_trans (_ : (zr s + 1) * (P * e) + 3%:R * (P * e) <= _).
  rewrite -addrA ler_add2l (_ : P + 2%:R * P = 3%:R * P); last by ring.
  by rewrite ler_pmul2l ?ltr0n.
by rewrite -mulrDl -addrA -(natrD _ 1 3).
Qed.

Definition sum_of k := P * series_sum x k.

Lemma sum_next k : sum_of k.+1 = sum_of k + (-1) ^+ k.+1 * exact_term k.+1.
Proof.
by rewrite /sum_of /series_sum big_ord_recr /= mulrDr /exact_term [(- x) ^+ _]exprNn -mulrA [P * (_ * _)]mulrCA.
Qed.

Lemma series_near fuel k t total :
  Z.le 0 t -> zr t <= exact_term k <= zr t + 4%:R -> `|zr total - sum_of k| <= 4%:R * k%:R ->
  Z.lt places (Z.of_nat (k + fuel)) ->
  exists N, [/\ (N <= k + fuel)%N, (series fuel (Z.of_nat k) t total y places).1 = Z.of_nat N, exact_term N <= 4%:R &
    `|zr (series fuel (Z.of_nat k) t total y places).2 - sum_of N| <= 4%:R * N%:R].
Proof.
elim: fuel k t total => [|fuel IH] k t total t0 near err long /=.
  exists k; rewrite addn0 leqnn; split=> //; rewrite -(ler_pmul2r (exprn_gt0 k (ltr0n R 2))).
  apply: le_trans (exact_small k) _; rewrite /P zr_two //.
  apply: le_trans (_ : 2%:R ^+ k <= _); last by rewrite ler_pemull ?exprn_ge0 ?ler0n ?ler1n.
  rewrite ler_eexpn2l ?ltr1n //; apply/ssrnat.leP/Nat2Z.inj_le; rewrite Z2Nat.id //.
  by move: long; rewrite addn0; apply: Z.lt_le_incl.
case: Z.eqb_spec => [t_0|_].
  exists k; rewrite leq_addr; split=> //; by move: near; rewrite t_0 zr0 add0r => /andP [].
have [t'0 near'] := next_term t0 near; set t' := Z.div _ _ in t'0 near' *.
have -> : Z.add (Z.of_nat k) 1 = Z.of_nat k.+1 by rewrite Nat2Z.inj_succ Z.add_1_r.
set total' := if _ then _ else _; have [| |N [le1 h1 h2 h3]] := IH k.+1 t' total' t'0 near'.
- have -> : zr total' = zr total + (-1) ^+ k.+1 * zr t'.
    by rewrite /total' odd_of_nat -signr_odd; case: (odd _); rewrite ?expr0 ?expr1 ?zrB ?zrD ?mulN1r ?mul1r.
  rewrite sum_next (_ : zr total + _ - _ = (zr total - sum_of k) + (-1) ^+ k.+1 * (zr t' - exact_term k.+1));
    last by ring.
  apply: le_trans (ler_norm_add _ _) _.
  rewrite (_ : 4%:R * k.+1%:R = 4%:R * k%:R + 4%:R); last by rewrite -[k.+1]addn1 natrD mulrDr mulr1.
  apply: ler_add => //.
  rewrite normrM normrX normrN1 expr1n mul1r distrC.
  by have /andP [lo hi] := near'; rewrite ger0_norm ?subr_ge0 // ler_subl_addl.
- by rewrite addSnnS.
by exists N; rewrite addSnnS in le1.
Qed.

Lemma exponential_near N : exact_term N <= 4%:R -> `|P * E x - sum_of N| <= 4%:R.
Proof.
move=> small; have next : exact_term N.+1 <= 4%:R.
  apply: le_trans (le_trans (exact_falls N) _) small.
  by rewrite mulrA mulr1 ler_pdivr_mulr ?ltr0n // ler_pemulr ?exact_ge0 // ler1n.
have := mulr_ge0 (ltW P0) (taylor E_sum E_above N x0 x_le1).
have := mulr_ge0 (ltW P0) (taylor E_sum E_above N.+1 x0 x_le1).
rewrite ![P * (_ * (_ - _))]mulrCA ![P * (_ - _)]mulrBr -!/(sum_of _) sum_next opprD addrA mulrBr.
set D := P * E x - sum_of N; rewrite exprS !mulN1r [X in _ - X]mulrA -signr_odd.
case: (odd _); rewrite ?expr0 ?expr1 !(mulN1r, mul1r, mulNr, opprK, mulrN, mulr1) => h0 h1.
  by rewrite ler0_norm -?oppr_ge0 //; apply: le_trans next; rewrite -subr_ge0 opprK addrC.
by rewrite ger0_norm //; apply: le_trans next; rewrite -subr_ge0 addrC.
Qed.
End Series.

Lemma squared_around h low high places X : Z.le 0 places -> Z.le 0 low -> zr low <= zr (2 ^ places) * X <= zr high ->
  zr (squared h low high places).1 <= zr (2 ^ places) * X ^+ (2 ^ h) <= zr (squared h low high places).2.
Proof.
move=> places0; have two := two_pos places0; set P := zr (2 ^ places).
have P0 : 0 < P by apply/zr_gt0/Z.ltb_lt.
elim: h low high X => [|h IH] low high X low0 /andP [lo hi] /=; first by rewrite expr1 lo hi.
have -> : X ^+ (2 ^ h.+1) = (X ^+ 2) ^+ (2 ^ h) by rewrite -exprM -expnS.
rewrite !Z.shiftr_div_pow2 //; apply: IH.
  by apply: Z.div_pos => //; apply: Z.mul_nonneg_nonneg.
have := floor (low * low) two; have := floor (high * high) two; rewrite !zrM -/P => /andP [_ up] /andP [down _].
have l0 := zr_leq low0; rewrite zr0 in l0.
rewrite -[X in X && _](ler_pmul2r P0) -[X in _ && X](ler_pmul2r P0) (_ : P * X ^+ 2 * P = (P * X) ^+ 2); last by ring.
rewrite !expr2 (le_trans down) /=; last by apply: ler_pmul.
by rewrite zrD; apply: le_trans (ltW up); apply: ler_pmul => //; apply: le_trans lo.
Qed.

Lemma bit_length_above q : Z.le 0 q -> Z.lt q (2 ^ bit_length q).
Proof.
move=> q0; rewrite /bit_length; case: Z.leb_spec => [q1|q1]; first by apply: Z.le_lt_trans q1 _.
by have [] := Z.log2_spec q q1.
Qed.

Lemma two_above p : (16 <= p)%N -> (16 * p + 72 <= 2 ^ p)%N.
Proof.
move/subnK => <-; elim: (p - 16)%N => // m IH; rewrite addSn mulnS expnS mul2n -addnn -addnA.
by apply: leq_add => //; apply: leq_trans IH; apply: leq_trans (leq_addl _ _).
Qed.

Lemma halved (a b c : R) : 0 < b -> 0 < c -> a / b = c * (a / (b * c)).
Proof. by move=> b0 c0; field; rewrite !gt_eqF. Qed.

Lemma left_below (P e m : R) :
  16%:R * m + 40%:R <= P -> P <= 2%:R * e -> 0 <= e - (4%:R * m + 4%:R) - (4%:R * m + 16%:R).
Proof.
move=> big half; have two0 : 0 < 2%:R :> R by rewrite ltr0n.
rewrite -(pmulr_rge0 _ two0); have := le_trans big half; rewrite -subr_ge0; congr (_ <= _); ring.
Qed.

Theorem exp_bounds_holds n d bits : Z.le 0 n -> Z.lt 0 d -> Z.le 0 bits ->
  zr (exp_bounds n d bits).1 <= zr (2 ^ bits) * E (zr n / zr d) <= zr (exp_bounds n d bits).2.
Proof.
move=> n0 d0 bits0; rewrite /exp_bounds; case: Z.eqb_spec => [->|_] /=.
  by rewrite zr0 mul0r (E0 E_sum E_above) mulr1 lexx.
have q0 : Z.le 0 (Z.div (2 * n) d) by apply: Z.div_pos => //; apply: Z.mul_nonneg_nonneg.
set h := bit_length _; set places := Z.add _ 16; set y := Z.div (n * _) _.
have h0 : Z.le 0 h.
  rewrite /h /bit_length; case: Z.leb_spec => // _; apply: Z.add_nonneg_nonneg => //; exact: Z.log2_nonneg.
have places0 : Z.le 0 places by apply: Z.add_nonneg_nonneg => //; apply: Z.add_nonneg_nonneg.
have less : Z.lt (2 * n) (d * 2 ^ h).
  apply: Z.lt_le_trans (Z.mul_succ_div_gt (2 * n) d d0) _; apply: Z.mul_le_mono_nonneg_l; first exact: Z.lt_le_incl.
  by apply/Z.le_succ_l/bit_length_above.
have dR : 0 < zr d by apply/zr_gt0/Z.ltb_lt.
have hR : 0 < zr (2 ^ h) by apply/zr_gt0/Z.ltb_lt/two_pos.
have nR : 0 <= zr n by have := zr_leq n0; rewrite zr0.
pose x := zr n / (zr d * zr (2 ^ h)); have x0 : 0 <= x by rewrite divr_ge0 ?mulr_ge0 // ltW.
have x_half : x <= 1 / 2%:R.
  rewrite ler_pdivr_mulr ?mulr_gt0 // mul1r mulrC ler_pdivl_mulr ?ltr0n // mulrC.
  by have := ltW (zr_lt less); rewrite !zrM.
have y0 : Z.le 0 y.
  apply: Z.div_pos; first by apply: Z.mul_nonneg_nonneg => //; apply/Z.lt_le_incl/two_pos.
  by apply: Z.mul_pos_pos => //; apply: two_pos.
have y_x : zr y <= x * zr (2 ^ places) < zr y + 1.
  have := floor (n * 2 ^ places) (Z.mul_pos_pos _ _ d0 (two_pos h0)); rewrite -/y !zrM => /andP [lo hi].
  by rewrite /x mulrAC ler_pdivl_mulr ?mulr_gt0 // ltr_pdivr_mulr ?mulr_gt0 // lo hi.
have [|||| N []] := series_near places0 x0 x_half y_x y0 (k := 0) (fuel := Z.to_nat places + 2)
  (t := 2 ^ places) (total := 2 ^ places).
- by apply/Z.lt_le_incl/two_pos.
- by rewrite /exact_term expr0 fact0 divr1 mulr1 lexx ler_addl ler0n.
- by rewrite /sum_of /series_sum big_ord_recl big_ord0 addr0 expr0 fact0 divr1 mulr1 subrr normr0 mulr0.
- rewrite add0n Nat2Z.inj_add Z2Nat.id //; exact: Z.lt_add_pos_r.
rewrite add0n => N_le; set s := series _ _ _ _ _ _; case: s => count total /= -> small near.
have {}near : `|zr total - zr (2 ^ places) * E x| <= 4%:R * N%:R + 4%:R.
  have := ler_add near (exponential_near places0 x0 x_half small); apply: le_trans.
  by rewrite [X in _ <= _ + X]distrC; apply: ler_dist_add.
move: near; rewrite ler_norml => /andP [near0 near1]; have two := two_pos places0.
have P0 : 0 < zr (2 ^ places) by apply/zr_gt0/Z.ltb_lt.
have slackE : zr (4 * Z.of_nat N + 16) = 4%:R * N%:R + 16%:R by rewrite zrD zrM zr_of_nat.
set slack := Z.add _ 16 in slackE *.
have low0 : Z.le 0 (total - slack).
  apply/Z.nlt_ge => /zr_lt; rewrite zr0 zrB slackE ltNge => /negP; apply.
  have half : zr (2 ^ places) <= 2%:R * (zr (2 ^ places) * E x).
    rewrite mulrCA ler_pemulr // ?(ltW P0) // mulrC -ler_pdivr_mulr ?ltr0n //.
    apply: le_trans (E_above x); rewrite ler_subr_addl -ler_subr_addr; apply: le_trans x_half _.
    by rewrite le_eqVlt; apply/orP; left; apply/eqP; field.
  have big : 16%:R * N%:R + 40%:R <= zr (2 ^ places).
    rewrite zr_two // -natrX -natrM -natrD ler_nat; apply: leq_trans (two_above _).
      by rewrite -[72%N]/(16 * 2 + 40)%N addnA leq_add2r -mulnDr leq_mul2l.
    apply/ssrnat.leP/Nat2Z.inj_le; rewrite Z2Nat.id // /places; apply: (Z.add_le_mono 0 _ 16 16) => //.
    exact: Z.add_nonneg_nonneg.
  apply: le_trans (_ : zr (2 ^ places) * E x - (4%:R * N%:R + 4%:R) - (4%:R * N%:R + 16%:R) <= _); last first.
    by rewrite ler_add2r; move: near0; rewrite ler_subr_addr addrC.
  exact: left_below big half.
have room : 4%:R * N%:R + 4%:R <= zr slack :> R by rewrite slackE ler_add2l ler_nat.
have around : zr (total - slack) <= zr (2 ^ places) * E x <= zr (total + slack).
  rewrite zrB zrD; apply/andP; split.
    by rewrite ler_subl_addl -ler_subl_addr; apply: le_trans near1 room.
  rewrite -ler_subl_addl -opprB ler_oppl; apply: le_trans near0; by rewrite ler_opp2.
have := squared_around (Z.to_nat h) places0 low0 around.
move: (squared _ _ _ _) => [low high] /= {around} /andP [lo hi].
have g0 : Z.le 0 (places - bits) by rewrite /places -Z.add_assoc Z.add_simpl_l; apply: Z.add_nonneg_nonneg.
have EE : E (zr n / zr d) = E x ^+ (2 ^ Z.to_nat h).
  by rewrite -E_power // natrX -zr_two // -halved.
have PE : zr (2 ^ places) = zr (2 ^ bits) * zr (2 ^ (places - bits)).
  by rewrite -zrM -Z.pow_add_r // Z.add_comm Z.sub_add.
rewrite PE mulrAC -EE in lo hi; have two' := two_pos g0.
have G0 : 0 < zr (2 ^ (places - bits)) by apply/zr_gt0/Z.ltb_lt.
rewrite !Z.shiftr_div_pow2 // -[X in X && _](ler_pmul2r G0) -[X in _ && X](ler_pmul2r G0) zrD.
have /andP [down _] := floor low two'; have /andP [_ up] := floor high two'.
by rewrite (le_trans down lo) (le_trans hi (ltW up)).
Qed.
End Holds.
Print Assumptions exp_bounds_holds.
