(* The Booleans of Space.v, Time.v and Seeds.v as a program computes them: on the whole numbers of the standard library, field by
   field in the order of the records.

   accepted_sound        where `accepted` is true, what Space.v calls proved holds of the design
   accepted_time_sound   where `accepted_time` is, what Time.v calls proved_time holds of the strategy
   accepted_seeds_sound  where `accepted_seeds` is, what Seeds.v calls proved_seeds holds of the seeds

   checker/Extract.v writes them as a program of OCaml. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Numbers Space Time Seeds.
Local Open Scope Z_scope.

Notation integer := BinNums.Z.
Definition billion : integer := 1000000000.
Definition accepted n (W R : seq (seq integer)) (tau : seq integer) (cap floor : option (seq integer)) (dW dR dt po qo gn gd : integer)
    (M L Z : seq (seq integer)) (b w u : seq integer) (K s : integer) : bool :=
  @check binary billion n (@Design binary W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s).
Definition accepted_time n (H C : seq (seq integer)) (steps : seq (seq nat)) (tau : seq integer) (cap : option (seq integer))
    (dL dC dt po qo gn gd : integer) (M L Z B : seq (seq integer)) (on : seq nat) (w : seq integer) (K s : integer) : bool :=
  @check_time binary billion n (@Strategy binary H C steps tau cap dL dC dt po qo gn gd M L Z B on w K s).
Definition accepted_seeds n (W : seq (seq integer)) (sets : seq (seq nat)) (P : seq (seq (seq integer))) (tau : seq integer)
    (cap : option (seq integer)) (dW dR dt po qo gn gd : integer) (M L Z : seq (seq integer)) (b w : seq integer)
    (Q D : seq (seq (seq integer))) (K s : integer) : bool :=
  @check_seeds binary billion n (@Seeds binary W sets P tau cap dW dR dt po qo gn gd M L Z b w Q D K s).

Theorem accepted_sound (F : realFieldType) n W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s :
  accepted n W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s ->
  @proved F binary billion n (@Design binary W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s).
Proof. exact (@check_sound F binary billion n _). Qed.

Theorem accepted_time_sound (F : realFieldType) n H C steps tau cap dL dC dt po qo gn gd M L Z B on w K s :
  accepted_time n H C steps tau cap dL dC dt po qo gn gd M L Z B on w K s ->
  @proved_time F binary billion n (@Strategy binary H C steps tau cap dL dC dt po qo gn gd M L Z B on w K s).
Proof. exact (@check_time_sound F binary billion n _). Qed.

Theorem accepted_seeds_sound (F : realFieldType) n W sets P tau cap dW dR dt po qo gn gd M L Z b w Q D K s :
  accepted_seeds n W sets P tau cap dW dR dt po qo gn gd M L Z b w Q D K s ->
  @proved_seeds F binary billion n (@Seeds binary W sets P tau cap dW dR dt po qo gn gd M L Z b w Q D K s).
Proof. exact (@check_seeds_sound F binary billion n _). Qed.
Print Assumptions accepted_sound.
Print Assumptions accepted_time_sound.
Print Assumptions accepted_seeds_sound.
