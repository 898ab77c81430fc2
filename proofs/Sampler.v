(* The sampler of discrete Gaussians in integers (noisedesign.noise.discrete_gaussian;
   docs/mathematics/integers.md, theorem J): every attempt ends with x with probability
   S exp(-x^2 / 2 sigma^2) / (2^65 w), the same multiple of the wanted weight for every integer x, tail
   included. What is drawn in place of a rejected attempt then has this law, exactly.

   Proved here:
   - the alias method: of all first words, as many lead to an outcome as its columns say
     ([alias_counts]);
   - the law of an attempt, for every variance and every table whose weights are above the density:
     no acceptance is above 1, and buckets and tail give the multiple above ([bucket_law],
     [tail_law]);
   - the comparison of a uniform, of which more bits are drawn as long as bounds of the exponential do
     not decide, decides rightly whatever the bits to come ([accepted_rightly], [rejected_rightly]), and
     uniforms that are not decided lie together ([undecided_are_close]);
   - so it does with the bounds that the code computes, of ExpBounds.v ([decided_rightly]);
   - the table of variance 1, computed here as the code computes it, has weights that sum to 2^64, words
     as many as weights, and weights above the density ([table_of_variance_1], [law_of_variance_1]).

   Of the exponential, E(x) = exp(-x), nothing is used but that it turns sums into products, is positive and
   falls; for variance 1 and the code's bounds that 1 - x <= E(x), too, from which Exponential.v bounds it by
   sums of its series. Uniform words are what the sampler assumes, too. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Riccati Exponential ExpBounds.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

(* The alias method: a word chooses a column by its first bits, and by the others the column itself or
   its alias. *)
Section Alias.
Variables (columns room : nat) (threshold alias : nat -> nat).
Definition outcome word := let column := word %/ room in
  if word %% room < threshold column then column else alias column.
Definition words k := \sum_(word < columns * room) (outcome word == k).

Lemma by_columns (F : nat -> nat) :
  \sum_(word < columns * room) F word = \sum_(i < columns) \sum_(rest < room) F (i * room + rest).
Proof.
elim: columns => [|m IH]; first by rewrite mul0n !big_ord0.
rewrite big_ord_recr /= -IH -!(big_mkord xpredT F) mulSn addnC.
rewrite (big_cat_nat _ _ _ (leq0n _) (leq_addr room (m * room))) /=; congr (_ + _).
by rewrite -{1}[m * room]add0n big_addn addKn big_mkord; apply: eq_bigr => i _; rewrite addnC.
Qed.

Theorem alias_counts k : (forall i, i < columns -> threshold i <= room) ->
  words k = \sum_(i < columns) ((i == k :> nat) * threshold i + (alias i == k) * (room - threshold i)).
Proof.
move=> fits; rewrite /words (by_columns (fun word => (outcome word == k) : nat)); apply: eq_bigr => i _; have fit := fits i (ltn_ord i).
rewrite (eq_bigr (fun rest : 'I_room => if rest < threshold i then (i == k :> nat) : nat else (alias i == k : nat))).
  rewrite -(big_mkord xpredT (fun rest => if rest < threshold i then (i == k :> nat) : nat else (alias i == k : nat))).
  rewrite (big_cat_nat _ _ _ (leq0n _) fit) /=; congr (_ + _).
    by rewrite big_nat (eq_bigr (fun=> (i == k :> nat) : nat)) -?big_nat ?sum_nat_const_nat ?subn0 1?mulnC // => j /andP[_ ->].
  rewrite big_nat (eq_bigr (fun=> (alias i == k) : nat)) -?big_nat ?sum_nat_const_nat 1?mulnC // => j /andP[].
  by rewrite leqNgt => /negbTE ->.
move=> rest _; have room0 : 0 < room by apply: leq_ltn_trans (ltn_ord rest).
by rewrite /outcome divnMDl // divn_small // addn0 modnMDl modn_small //; case: ifP.
Qed.
End Alias.

Local Open Scope ring_scope.

(* The law of an attempt. E y is exp(-y); variance p / q; buckets of w integers up to K w, weights W_k in
   2^64; the tail has buckets of w' integers and weight W_K. *)
Ltac nonneg := by repeat first [ done | apply: mulr_ge0 | apply: sqr_ge0 | apply: exprn_ge0
  | rewrite invr_ge0 | exact: ler0n | by apply: ltW ].

Section Law.
Variables (R : realFieldType) (E : R -> R).
Hypothesis E_sum : forall x y, E (x + y) = E x * E y.
Hypothesis E_positive : forall x, 0 < E x.
Hypothesis E_falls : forall x y, 0 <= x -> x <= y -> E y <= E x.
Variables (p q w w' S : R) (K : nat) (W : nat -> R).
Hypotheses (p0 : 0 < p) (q0 : 0 < q) (w0 : 0 < w) (w'0 : 0 < w') (S0 : 0 < S).

(* exp(-x^2 / 2 sigma^2). *)
Definition density (x : R) : R := E (x ^+ 2 * q / (2%:R * p)).
Definition end_ : R := K%:R * w.

Lemma density_positive x : 0 < density x. Proof. exact: E_positive. Qed.
Hint Resolve density_positive : core.

Lemma density_falls x y : 0 <= x -> x <= y -> density y <= density x.
Proof.
move=> x0 xy; rewrite /density; apply: E_falls; first by nonneg.
rewrite -![_ ^+ 2 * q / _]mulrA; apply: ler_wpmul2r; first by nonneg.
by rewrite ler_sqr ?nnegrE // (le_trans x0).
Qed.

(* A bucket k is chosen with probability W_k / 2^64, the sign and the place in it with 1 / 2 w, and kept
   with probability S density / W_k. *)
Definition keeps k x := S * density x / W k.
Hypothesis above : forall k, (k < K)%N -> S * density (k%:R * w) <= W k.

Lemma weight_positive k : (k < K)%N -> 0 < W k.
Proof. by move=> kK; apply: lt_le_trans (above kK); apply: mulr_gt0. Qed.

Theorem bucket_law k x : (k < K)%N -> k%:R * w <= x ->
  0 <= keeps k x <= 1 /\ W k / 2%:R ^+ 64 * (1 / (2%:R * w)) * keeps k x = S * density x / (2%:R ^+ 65 * w).
Proof.
move=> kK kx; have Wk := weight_positive kK; split.
  have kept0 : 0 <= keeps k x by rewrite /keeps; nonneg.
  rewrite kept0 /keeps ler_pdivr_mulr // mul1r; apply: le_trans (above kK).
  apply: ler_wpmul2l; first by nonneg.
  by apply: density_falls => //; nonneg.
have t0 : 0 < 2%:R ^+ 64 :> R by rewrite exprn_gt0 ?ltr0n.
rewrite /keeps [2%:R ^+ 65]exprS; move: (2%:R ^+ 64) t0 => t t0.
by field; rewrite !gt_eqF.
Qed.

(* Bucket j of the tail is chosen with probability 2^-(j+1), in it a place with 1 / w'. *)
Hypothesis tail_above : 2%:R * w' * S * density end_ <= W K * w.
Hypothesis tail_halves : E (end_ * w' * q / p) <= 1 / 2%:R.
Definition keeps_far (j : nat) x := S * 2%:R ^+ j.+1 * w' * density x / (W K * w).

Lemma tail_falls j : 2%:R ^+ j * density (end_ + j%:R * w') <= density end_.
Proof.
have end0 : 0 <= end_ by rewrite /end_; nonneg.
elim: j => [|j IH]; first by rewrite expr0 mul1r mul0r addr0.
apply: le_trans IH; rewrite exprSr -mulrA; apply: ler_wpmul2l; first by nonneg.
set x := end_ + j%:R * w'; have x0 : end_ <= x by rewrite ler_addl; nonneg.
have xx : 0 <= x by apply: le_trans x0.
have -> : end_ + j.+1%:R * w' = x + w' by rewrite -addn1 natrD mulrDl mul1r addrA.
have -> : density (x + w') = density x * E ((x * w' * q / p) + w' ^+ 2 * q / (2%:R * p)).
  by rewrite -E_sum /density; congr E; field; rewrite !gt_eqF.
have half : E (x * w' * q / p + w' ^+ 2 * q / (2%:R * p)) <= 1 / 2%:R.
  apply: le_trans tail_halves; apply: E_falls; first by nonneg.
  apply: le_trans (_ : x * w' * q / p <= _); last by rewrite ler_addl; nonneg.
  by do 3 (apply: ler_wpmul2r; first by nonneg).
rewrite mulrCA -[X in _ <= X]mulr1; apply: ler_wpmul2l; first by nonneg.
by rewrite mulrC -ler_pdivl_mulr ?ltr0n.
Qed.

Theorem tail_law j x : end_ + j%:R * w' <= x ->
  0 <= keeps_far j x <= 1 /\
  W K / 2%:R ^+ 64 * (1 / 2%:R ^+ j.+1) * (1 / (2%:R * w')) * keeps_far j x = S * density x / (2%:R ^+ 65 * w).
Proof.
move=> jx; have end0 : 0 <= end_ by rewrite /end_; nonneg.
have p2 m : 0 < 2%:R ^+ m :> R by rewrite exprn_gt0 ?ltr0n.
have WK : 0 < W K by rewrite -(pmulr_lgt0 _ w0); apply: lt_le_trans tail_above; rewrite !mulr_gt0 ?ltr0n.
split.
  have kept0 : 0 <= keeps_far j x by rewrite /keeps_far; nonneg.
  rewrite kept0 /keeps_far ler_pdivr_mulr ?mulr_gt0 // mul1r; apply: le_trans tail_above.
  have -> : S * 2%:R ^+ j.+1 * w' * density x = 2%:R * w' * S * (2%:R ^+ j * density x) by rewrite exprS; ring.
  apply: ler_wpmul2l; first by nonneg.
  apply: le_trans (tail_falls j); apply: ler_wpmul2l; first by nonneg.
  by apply: density_falls => //; apply: addr_ge0 => //; nonneg.
rewrite /keeps_far [2%:R ^+ 65]exprS; move: (p2 64%N) (p2 j.+1); move: (2%:R ^+ 64) (2%:R ^+ j.+1) => s t s0 t0.
by field; rewrite !gt_eqF.
Qed.
End Law.

(* The comparison of U, whose first bits are u, with a / b of a density that integers enclose. *)
Section Decision.
Variables (R : realFieldType) (a b u low high rho : R) (bits places : nat).
Hypotheses (a0 : 0 <= a) (b0 : 0 < b).
Hypotheses (enclosed_low : low <= 2%:R ^+ places * rho) (enclosed_high : 2%:R ^+ places * rho <= high).
Definition accepted v := (v + 1) * b * 2%:R ^+ places <= a * low * 2%:R ^+ bits.
Definition rejected v := a * high * 2%:R ^+ bits <= v * b * 2%:R ^+ places.

Let two m : 0 < 2%:R ^+ m :> R. Proof. by rewrite exprn_gt0 ?ltr0n. Qed.

Lemma over_all : a / b * rho * 2%:R ^+ bits * (b * 2%:R ^+ places) = a * (2%:R ^+ places * rho) * 2%:R ^+ bits.
Proof. by field; rewrite gt_eqF. Qed.

Theorem accepted_rightly U : accepted u -> U < (u + 1) / 2%:R ^+ bits -> U < a / b * rho.
Proof.
rewrite /accepted => yes /lt_le_trans; apply; rewrite ler_pdivr_mulr //.
rewrite -(ler_pmul2r (mulr_gt0 b0 (two places))) over_all mulrA; apply: le_trans yes _.
by rewrite ler_pmul2r // ler_wpmul2l.
Qed.

Theorem rejected_rightly U : rejected u -> u / 2%:R ^+ bits <= U -> a / b * rho <= U.
Proof.
rewrite /rejected => no; apply: le_trans; rewrite ler_pdivl_mulr //.
rewrite -(ler_pmul2r (mulr_gt0 b0 (two places))) over_all [u * _]mulrA; apply: le_trans no.
by rewrite ler_pmul2r // ler_wpmul2l.
Qed.

(* Undecided first bits are so few: the code's bounds differ by 3 at most, and places are bits + 32. *)
Theorem undecided_are_close v : ~~ accepted u -> ~~ rejected v ->
  v < u + 1 + a * (high - low) * 2%:R ^+ bits / (b * 2%:R ^+ places).
Proof.
rewrite /accepted /rejected -!ltNge => nu nv; have pos := mulr_gt0 b0 (two places).
rewrite -(ltr_pmul2r pos) [X in _ < X]mulrDl divfK ?gt_eqF // !mulrA; apply: lt_trans nv _.
by rewrite mulrBr mulrBl addrC -addrA ltr_addl addrC subr_gt0.
Qed.
End Decision.

(* The table, as the code computes it. *)
Section Table.
Local Open Scope Z_scope.
Definition ceiling a b := - (- a / b).
Definition bits_to_reach count := bit_length (count - 1).

Record table := Table { column_bits : Z; buckets : Z; width_bits : Z; tail_bits : Z; scale : Z;
  weights : seq Z; thresholds : seq Z; aliases : seq nat }.

(* Columns with too little are filled from those with enough, the last of both first. *)
Fixpoint fill fuel room left thr (al : seq nat) (small large : seq nat) : seq Z * seq nat :=
  match fuel, small, large with
  | f.+1, i :: small, j :: large =>
      let rest := at_row left j - (room - at_row left i) in
      let left' := set_nth 0 left j rest in
      let thr := set_nth 0 thr i (at_row left i) in let al := set_nth 0%N al i j in
      if rest <? room then fill f room left' thr al (j :: small) large
      else fill f room left' thr al small (j :: large)
  | _, _, _ => (thr, al)
  end.

Definition alias_columns ws column_bits :=
  let columns := Z.to_nat (2 ^ column_bits) in let room := 2 ^ (64 - column_bits) in
  let left := ws ++ nseq (columns - size ws) 0 in
  let those b := rev [seq i <- iota 0 columns | (at_row left i <? room) == b] in
  fill columns room left (nseq columns room) (iota 0 columns) (those true) (those false).

Definition table_of p q :=
  let reach := Z.sqrt (81 * p / (4 * q)) + 1 in
  let width_bits := bits_to_reach (ceiling reach (2 ^ 12 - 2)) in
  let buckets := ceiling reach (2 ^ width_bits) in
  let stop := buckets * 2 ^ width_bits in
  let tail_bits := bits_to_reach (ceiling (3 * p) (4 * stop * q)) in
  let above x := snd (exp_bounds (x * x * q) (2 * p) 192) in
  let most := [seq above (Z.of_nat k * 2 ^ width_bits) | k <- iota 0 (Z.to_nat buckets)] ++
              [:: Z.shiftr (above stop * 2 ^ (tail_bits + 1)) width_bits + 1] in
  let sum := foldr Z.add 0 most in
  let scale := (2 ^ 64 - Z.of_nat (size most) - 1) * 2 ^ 192 / sum in
  let ws := [seq ceiling (scale * high) (2 ^ 192)%Z | high <- most] in
  let all_ws := ws ++ [:: 2 ^ 64 - foldr Z.add 0 ws] in
  let column_bits := bit_length (buckets + 1) in
  let: (thr, al) := alias_columns all_ws column_bits in
  Table column_bits buckets width_bits tail_bits scale all_ws thr al.

Definition counted t k := let room := 2 ^ (64 - column_bits t) in
  sumZ (Z.to_nat (2 ^ column_bits t)) (fun i =>
    (if i == k then at_row (thresholds t) i else 0) +
    (if nth 0%N (aliases t) i == k then room - at_row (thresholds t) i else 0)).

Definition table_ok t p q := let K := Z.to_nat (buckets t) in
  let above x := snd (exp_bounds (x * x * q) (2 * p) 192) in
  [&& foldr Z.add 0 (weights t) =? 2 ^ 64, size (weights t) == K.+2,
    every (Z.to_nat (2 ^ column_bits t)) (fun k => counted t k =? at_row (weights t) k),
    every (Z.to_nat (2 ^ column_bits t)) (fun i =>
      (0 <=? at_row (thresholds t) i) && (at_row (thresholds t) i <=? 2 ^ (64 - column_bits t))) &
    every K (fun k => scale t * above (Z.of_nat k * 2 ^ width_bits t) <=? at_row (weights t) k * 2 ^ 192)].

End Table.

(* As the code has it, and as a test of the code compares. *)
Definition variance_1 := Eval vm_compute in table_of 1 1.

Theorem table_of_variance_1 : table_ok variance_1 1 1.
Proof. by vm_compute. Qed.

(* The comparison as the code makes it, of a / b exp(-n / d). *)
Section Decided.
Variables (R : archiFieldType) (E : R -> R).
Hypothesis E_sum : forall x y, E (x + y) = E x * E y.
Hypothesis E_above : forall x, 1 - x <= E x.
Local Notation zr := (zr R).

Theorem decided_rightly a b u n d bits places U : Z.le 0 a -> Z.lt 0 b -> Z.le 0 n -> Z.lt 0 d ->
  let: (low, high) := exp_bounds n d (Z.of_nat places) in
  zr u / 2%:R ^+ bits <= U -> U < (zr u + 1) / 2%:R ^+ bits ->
  (Z.leb ((u + 1) * b * 2 ^ Z.of_nat places) (a * low * 2 ^ Z.of_nat bits) -> U < zr a / zr b * E (zr n / zr d)) /\
  (Z.leb (a * high * 2 ^ Z.of_nat bits) (u * b * 2 ^ Z.of_nat places) -> zr a / zr b * E (zr n / zr d) <= U).
Proof.
move=> /(zr_leq R) a0 /(zr_lt R) b0 n0 d0.
have := exp_bounds_holds E_sum E_above n0 d0 (Nat2Z.is_nonneg places); case: (exp_bounds _ _ _) => low high /=.
have two k : zr (2 ^ Z.of_nat k) = 2%:R ^+ k by rewrite zr_two ?Nat2Z.id //; apply: Nat2Z.is_nonneg.
rewrite two => /andP [lo hi] Ulo Uhi; split=> /(zr_le R); rewrite !(zrM, zrD) !two => said.
  exact: (accepted_rightly (places := places) a0 b0 lo said Uhi).
exact: (rejected_rightly (places := places) a0 b0 hi said Ulo).
Qed.
End Decided.

(* The law of variance 1, of the exponential itself: no other function has the two properties. *)
Section Variance1.
Variables (R : archiFieldType) (E : R -> R).
Hypothesis E_sum : forall x y, E (x + y) = E x * E y.
Hypothesis E_above : forall x, 1 - x <= E x.
Let E_positive := E_positive E_sum E_above.
Let E_falls := E_falls E_sum E_above.

(* 31 terms at most at 1, which is up to 4 halvings away. *)
Lemma from_integers s n d weight : shows 4 30 s n d weight -> zr R s * E (zr R n / zr R d) <= zr R weight.
Proof. exact: exponential_below. Qed.

Definition weight_1 k : R := zr R (at_row (weights variance_1) k).
Definition scale_1 : R := zr R (scale variance_1).
Definition density_1 : R -> R := density E 1 1.

Lemma density_1_at k : density_1 (k%:R * 1) = E (zr R (Z.of_nat k * Z.of_nat k) / zr R 2).
Proof. by rewrite /density_1 /density !mulr1 zrM zr_of_nat expr2. Qed.

Lemma scale_positive : 0 < scale_1.
Proof. exact: zr_gt0. Qed.

Lemma weights_above k : (k < 5)%N -> scale_1 * density_1 (k%:R * 1) <= weight_1 k.
Proof.
move=> k5; rewrite density_1_at; apply: from_integers.
move: k k5; do 5 (case; first by vm_compute). by [].
Qed.

Lemma tail_weight_above : 2%:R * 1 * scale_1 * density_1 (end_ 1 5) <= weight_1 5 * 1.
Proof.
rewrite mulr1 mulr1 /end_ density_1_at; have -> : 2%:R * scale_1 = zr R (2 * scale variance_1) by rewrite zrM.
by apply: from_integers; vm_compute.
Qed.

Lemma tail_of_1_halves : E (end_ 1 5 * 1 * 1 / 1) <= 1 / 2%:R.
Proof.
rewrite ler_pdivl_mulr ?ltr0n // mulrC; have -> : end_ 1 5 * 1 * 1 / 1 = zr R 5 / zr R 1 :> R.
  by rewrite /end_ !mulr1 -(zr_of_nat R 5).
by have := @from_integers 2 5 1 1; apply; vm_compute.
Qed.

(* Places of buckets are one integer each: magnitude k < 5, and 5 + j in the tail. *)
Theorem law_of_variance_1 :
  (forall k, (k < 5)%N -> 0 <= keeps E 1 1 scale_1 weight_1 k k%:R <= 1 /\
     weight_1 k / 2%:R ^+ 64 * (1 / (2%:R * 1)) * keeps E 1 1 scale_1 weight_1 k k%:R
       = scale_1 * density_1 k%:R / (2%:R ^+ 65 * 1)) /\
  (forall j, 0 <= keeps_far E 1 1 1 1 scale_1 5 weight_1 j (5 + j)%:R <= 1 /\
     weight_1 5 / 2%:R ^+ 64 * (1 / 2%:R ^+ j.+1) * (1 / (2%:R * 1))
       * keeps_far E 1 1 1 1 scale_1 5 weight_1 j (5 + j)%:R = scale_1 * density_1 (5 + j)%:R / (2%:R ^+ 65 * 1)).
Proof.
split=> [k k5 | j].
  by apply: (bucket_law E_positive E_falls ltr01 ltr01 ltr01 scale_positive weights_above) => //; rewrite mulr1.
apply: (tail_law E_sum E_positive E_falls ltr01 ltr01 ltr01 ltr01 scale_positive
  tail_weight_above tail_of_1_halves).
by rewrite /end_ !mulr1 natrD.
Qed.
End Variance1.
Print Assumptions alias_counts.
Print Assumptions undecided_are_close.
Print Assumptions table_of_variance_1.
Print Assumptions decided_rightly.
Print Assumptions law_of_variance_1.
