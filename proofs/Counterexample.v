(* An account for fixed responses is no bound before an observer of a part, when gradients answer to
   models (docs/mathematics/views.md, theorem F, counterexample).

   Path 0-1-2 with Metropolis-Hastings weights, two steps, models that start at 0, noise and clip 1.
   Node 2 holds the record, which moves its gradient of the first step by 1. Node 1 answers by
   alpha times its model. Node 0 sees its own messages and those of node 1. All of it is linear, so
   the view is normal, and it is told apart with and without the record exactly as N(0, 1) and
   N(mu, 1), mu^2 the least energy of a change of the noise that has the effect of the record: that
   of normal laws is the only fact used here that is not proved here. The account for fixed responses
   is this energy for alpha = 0. Everything is computed in rational numbers. *)
From Coq Require Import QArith Lqa Lia.
Local Open Scope Q_scope.

(* A number for each node, and noise for each step and node. *)
Definition nodes := nat -> Q.
Definition draws := nat -> nodes.

Definition mix (m : nodes) : nodes := fun i =>
  match i with
  | 0%nat => (2#3) * m 0%nat + (1#3) * m 1%nat
  | 1%nat => (1#3) * m 0%nat + (1#3) * m 1%nat + (1#3) * m 2%nat
  | _ => (1#3) * m 1%nat + (2#3) * m 2%nat
  end.

Section Run.
Variables alpha record : Q.  (* how node 1 answers; 1 with the record, 0 without *)

Definition gradient (t : nat) (x : nodes) : nodes := fun i =>
  match i, t with
  | 1%nat, _ => alpha * x 1%nat
  | 2%nat, 0%nat => record
  | _, _ => 0
  end.

Definition message (t : nat) (x : nodes) (z : draws) : nodes :=
  fun i => x i + gradient t x i + z t i.

Fixpoint model (t : nat) (z : draws) : nodes :=
  match t with
  | 0%nat => fun _ => 0
  | S s => mix (message s (model s z) z)
  end.

(* What node 0 sees: message i of step t. *)
Definition seen (z : draws) (t i : nat) : Q := message t (model t z) z i.
End Run.

(* The view with the record is that without it, on noise changed by u. *)
Definition hides (alpha : Q) (u : draws) := forall z t i, (t < 2)%nat -> (i < 2)%nat ->
  seen alpha 1 z t i == seen alpha 0 (fun t i => z t i + u t i) t i.

Definition energy (u : draws) : Q :=
  u 0%nat 0%nat ^ 2 + u 0%nat 1%nat ^ 2 + u 0%nat 2%nat ^ 2 +
  u 1%nat 0%nat ^ 2 + u 1%nat 1%nat ^ 2 + u 1%nat 2%nat ^ 2.

(* s is the squared sensitivity. *)
Definition sensitivity (alpha s : Q) :=
  (exists u, hides alpha u /\ energy u == s) /\ forall u, hides alpha u -> s <= energy u.

Definition beta (alpha : Q) : Q := (1#3) * (1 + alpha).

Ltac run_out := unfold seen; cbn -[Qplus Qmult Qdiv Qpower];
  do 2 (unfold message; cbn -[Qplus Qmult Qdiv Qpower]).

Lemma square_nonnegative b : 0 <= b ^ 2.
Proof. nra. Qed.

Lemma sum_of_squares_positive b : 0 < b ^ 2 + 1.
Proof. nra. Qed.

Theorem sensitivity_of_answers alpha : sensitivity alpha (beta alpha ^ 2 / (beta alpha ^ 2 + 1)).
Proof.
assert (pos := sum_of_squares_positive (beta alpha)).
split.
- pose (s := beta alpha / (beta alpha ^ 2 + 1)).
  exists (fun t i => match t, i with
                     | 0%nat, 2%nat => beta alpha * s
                     | 1%nat, 1%nat => s
                     | _, _ => 0 end).
  split.
  + intros z t i ht hi.
    assert (t = 0 \/ t = 1)%nat as [-> | ->] by lia;
    assert (i = 0 \/ i = 1)%nat as [-> | ->] by lia;
    run_out; unfold s, beta in *; field; nra.
  + unfold energy, s; field; nra.
- intros u h.
  assert (e := h (fun _ _ => 0) 1%nat 1%nat ltac:(lia) ltac:(lia)).
  assert (f := h (fun _ _ => 0) 0%nat 1%nat ltac:(lia) ltac:(lia)).
  assert (k := h (fun _ _ => 0) 0%nat 0%nat ltac:(lia) ltac:(lia)).
  revert e f k; run_out; intros e f k.
  assert (u 0%nat 0%nat == 0) as h0 by lra.
  assert (u 0%nat 1%nat == 0) as h1 by lra.
  assert (beta alpha * u 0%nat 2%nat + u 1%nat 1%nat == beta alpha) as line.
  { unfold beta; rewrite h0, h1 in e; lra. }
  apply Qle_shift_div_r; [exact pos|]; unfold energy.
  set (b := beta alpha) in *; set (x := u 0%nat 2%nat) in *; set (y := u 1%nat 1%nat) in *.
  (* Cauchy and Schwarz: b^2 = (b x + y)^2 <= (b^2 + 1) (x^2 + y^2). *)
  assert (b ^ 2 <= (x ^ 2 + y ^ 2) * (b ^ 2 + 1)) as cs.
  { apply Qle_trans with ((b * x + y) ^ 2); [rewrite line; apply Qle_refl|].
    assert (sq := square_nonnegative (b * y - x)); lra. }
  apply Qle_trans with (1 := cs), Qmult_le_compat_r; [|lra].
  assert (a0 := square_nonnegative (u 0%nat 0%nat)); assert (a1 := square_nonnegative (u 0%nat 1%nat)).
  assert (c0 := square_nonnegative (u 1%nat 0%nat)); assert (c2 := square_nonnegative (u 1%nat 2%nat)).
  lra.
Qed.

Lemma sensitivity_is alpha s : s == beta alpha ^ 2 / (beta alpha ^ 2 + 1) -> sensitivity alpha s.
Proof.
intros same; destruct (sensitivity_of_answers alpha) as [[u [hidden paid]] least]; split.
- exists u; split; [exact hidden|rewrite paid, same; reflexivity].
- intros u' hidden'; rewrite same; auto.
Qed.

(* The account for fixed responses, and sensitivities that exceed it. *)
Corollary account_of_fixed_responses : sensitivity 0 (1#10).
Proof. apply sensitivity_is; reflexivity. Qed.

Theorem fixed_is_no_bound : sensitivity 1 (4#13) /\ (1#10) < (4#13).
Proof. split; [apply sensitivity_is|]; reflexivity. Qed.

Corollary a_hundredfold_answer : sensitivity 100 (10201#10210) /\ (999#1000) < (10201#10210).
Proof. split; [apply sensitivity_is|]; reflexivity. Qed.

(* No number below 1, the account of a reader of all messages, is a bound whatever the answers. *)
Theorem no_bound_but_all_messages m : m < 1 -> exists alpha s, sensitivity alpha s /\ m < s.
Proof.
intros small; destruct (Qlt_le_dec m 0) as [negative | positive].
- exists 1, (4#13); split; [apply sensitivity_is; reflexivity|lra].
- exists (3 / (1 - m) - 1); eexists; split; [apply sensitivity_of_answers|].
  assert (beta (3 / (1 - m) - 1) == 1 / (1 - m)) as -> by (unfold beta; field; lra).
  apply Qlt_shift_div_l; [apply sum_of_squares_positive|].
  assert (1 <= 1 / (1 - m)) as large by (apply Qle_shift_div_l; lra).
  assert (1 / (1 - m) * (1 - m) == 1) as one by (field; lra).
  set (b := 1 / (1 - m)) in *; nra.
Qed.
Print Assumptions fixed_is_no_bound.
Print Assumptions no_bound_but_all_messages.
