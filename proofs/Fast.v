(* Whole numbers in pieces of 63 bits, which a processor multiplies: for designs of more than some dozen rows. That they
   are those of Z is proved by the library Bignums on what Rocq assumes of its machine integers (`Print Assumptions` of a
   theorem by them lists these and nothing else). *)
From Coq Require Import ZArith.
From Bignums Require Import BigZ.
From mathcomp Require Import all_ssreflect.
Require Import Numbers.

Lemma val_leb x y : BigZ.leb x y = Z.leb (BigZ.to_Z x) (BigZ.to_Z y).
Proof. by rewrite BigZ.spec_leb. Qed.

Definition machine : numbers := @Numbers BigZ.t BigZ.to_Z BigZ.zero BigZ.add BigZ.sub BigZ.mul BigZ.abs BigZ.leb
  BigZ.spec_0 BigZ.spec_add BigZ.spec_sub BigZ.spec_mul BigZ.spec_abs val_leb.
