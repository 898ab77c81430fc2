(* The Booleans of Space.v and Time.v as a program computes them: on the whole numbers of the standard library, field by
   field in the order of the records.

   accepted_sound        where `accepted` is true, what Space.v calls proved holds of the design
   accepted_time_sound   where `accepted_time` is, what Time.v calls proved_time holds of the strategy

   checker/Extract.v writes both as a program of OCaml. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Numbers Space Time.
Local Open Scope Z_scope.

Notation integer := BinNums.Z.
Definition billion : integer := 1000000000.
Definition accepted n (W R : seq (seq integer)) (tau : seq integer) (cap floor : option (seq integer)) (dW dR dt po qo gn gd : integer)
    (M L Z : seq (seq integer)) (b w u : seq integer) (K s : integer) : bool :=
  @check binary billion n (@Design binary W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s).
Definition accepted_time n (H C : seq (seq integer)) (steps : seq (seq nat)) (tau : seq integer) (dL dC dt po qo gn gd : integer)
    (M L Z B : seq (seq integer)) (on : seq nat) (K s : integer) : bool :=
  @check_time binary billion n (@Strategy binary H C steps tau dL dC dt po qo gn gd M L Z B on K s).

Theorem accepted_sound (F : realFieldType) n W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s :
  accepted n W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s ->
  @proved F binary billion n (@Design binary W R tau cap floor dW dR dt po qo gn gd M L Z b w u K s).
Proof. exact (@check_sound F binary billion n _). Qed.

Theorem accepted_time_sound (F : realFieldType) n H C steps tau dL dC dt po qo gn gd M L Z B on K s :
  accepted_time n H C steps tau dL dC dt po qo gn gd M L Z B on K s ->
  @proved_time F binary billion n (@Strategy binary H C steps tau dL dC dt po qo gn gd M L Z B on K s).
Proof. exact (@check_time_sound F binary billion n _). Qed.
Print Assumptions accepted_sound.
Print Assumptions accepted_time_sound.
