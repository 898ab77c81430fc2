(* The sampler of discrete Gaussians in integers (noisedesign.noise.discrete_gaussian;
   docs/mathematics/integers.md, theorem J): every attempt ends with x with probability
   S exp(-x^2 / 2 sigma^2) / (2^65 w), the same multiple of the wanted weight for every integer x, tail
   included. What is drawn in place of a rejected attempt then has this law, exactly.

   Proved here:
   - the alias method: of all first words, as many lead to an outcome as its columns say
     ([alias_counts]);
   - the law of an attempt, for every variance and every table whose weights are above the density:
     no acceptance is above 1, and buckets and tail give the multiple above ([attempt_in_a_bucket],
     [attempt_in_the_tail]);
   - the comparison of a uniform, of which more bits are drawn as long as bounds of the exponential do
     not decide, decides rightly whatever the bits to come ([accepted_rightly], [rejected_rightly]), and
     uniforms that are not decided lie together ([undecided_are_close]);
   - the table of variance 1, computed here as the code computes it, has weights that sum to 2^64, words
     as many as weights, and weights above the density ([table_of_variance_1], [law_of_variance_1]).

   Of the exponential nothing is used but that it turns sums into products, is positive and falls, and,
   for variance 1, that [exp_bounds], the series and squarings of the code, encloses it where the table
   asks: hypotheses by name. Uniform words are what the sampler assumes, too. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Riccati.
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

Theorem attempt_in_a_bucket k x : (k < K)%N -> k%:R * w <= x ->
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

Theorem attempt_in_the_tail j x : end_ + j%:R * w' <= x ->
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
