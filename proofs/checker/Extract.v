(* Writes the Booleans of Checker.v as checked.ml, into the folder where coqc runs.

   Believed: that Rocq's extraction keeps what is computed, and that the names on the right compute what Rocq defines by
   those on the left. `Whole` is the module Z of Zarith. *)
From Coq Require Import ZArith.
From Coq Require Extraction.
From noisedesign Require Import Checker.
Extraction Language OCaml.
Extract Inductive bool => "bool" [ "true" "false" ].
Extract Inductive list => "list" [ "[]" "(::)" ].
Extract Inductive prod => "(*)" [ "(,)" ].
Extract Inductive option => "option" [ "Some" "None" ].
Extract Inductive nat => "int" [ "0" "Stdlib.succ" ] "(fun zero next n -> if n = 0 then zero () else next (n - 1))".
Extract Inductive positive => "Whole.t"
  [ "(fun p -> Whole.succ (Whole.shift_left p 1))" "(fun p -> Whole.shift_left p 1)" "Whole.one" ]
  "(fun odd even one p ->
      if Whole.equal p Whole.one then one () else (if Whole.is_odd p then odd else even) (Whole.shift_right p 1))".
Extract Inductive Z => "Whole.t" [ "Whole.zero" "" "Whole.neg" ]
  "(fun zero pos neg z ->
      if Whole.sign z = 0 then zero () else if Whole.sign z > 0 then pos z else neg (Whole.neg z))".
Extract Inlined Constant Z.add => "Whole.add".
Extract Inlined Constant Z.sub => "Whole.sub".
Extract Inlined Constant Z.mul => "Whole.mul".
Extract Inlined Constant Z.abs => "Whole.abs".
Extract Inlined Constant Z.leb => "Whole.leq".
Extraction "checked.ml" accepted accepted_time accepted_seeds.
