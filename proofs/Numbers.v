(* Matrices as lists of rows of whole numbers, which a kernel computes with.

   numbers       a kind of whole numbers: its operations, and that they are those of Z
   at A i j      entry j of row i, 0 outside; rows may be short, as those of a triangle
   mx m n A      the matrix (m, n) of these entries over an ordered field; row n a the row of one list
   short n A     no row of A has more than n entries

   mulT A B is A B^T, tr n A the transpose, full n A the symmetric matrix of a lower triangle, worst and worst_gram the
   largest row of K I - A and of K I - A A^T by absolute values, and each lemma says so. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ.
Require Import Quadratic Enclosure.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

Record numbers := Numbers {
  num :> Type; val : num -> Z;
  zero : num; add : num -> num -> num; sub : num -> num -> num; mul : num -> num -> num; abs : num -> num;
  le : num -> num -> bool;
  val0 : val zero = Z0;
  valD : forall x y, val (add x y) = Z.add (val x) (val y);
  valB : forall x y, val (sub x y) = Z.sub (val x) (val y);
  valM : forall x y, val (mul x y) = Z.mul (val x) (val y);
  val_abs : forall x, val (abs x) = Z.abs (val x);
  val_le : forall x y, le x y = Z.leb (val x) (val y) }.
Arguments zero {_}.

(* The numbers of the standard library, on which nothing is assumed. *)
Definition binary : numbers := @Numbers Z id Z0 Z.add Z.sub Z.mul Z.abs Z.leb erefl
  (fun _ _ => erefl) (fun _ _ => erefl) (fun _ _ => erefl) (fun _ => erefl) (fun _ _ => erefl).

Section Compute.
Variable T : numbers.
Implicit Types (a b : seq T) (A B : seq (seq T)) (x y : T).

Definition lt x y := ~~ le y x.
Definition positive x := lt zero x.
Definition max x y := if le x y then y else x.
Definition total a := foldr (@add T) zero a.
Definition at_ a j : T := nth zero a j.
Definition at2 A i j : T := at_ (nth [::] A i) j.
Fixpoint dot a b := if a is x :: a' then if b is y :: b' then add (mul x y) (dot a' b') else zero else zero.
Fixpoint inner_of A B := if A is a :: A' then if B is b :: B' then add (dot a b) (inner_of A' B') else zero else zero.
Definition mulT A B := [seq [seq dot a b | b <- B] | a <- A].
Definition tr n A := [seq [seq at_ a j | a <- A] | j <- iota 0 n].
Definition tab n (f : nat -> nat -> T) := [seq [seq f i j | j <- iota 0 n] | i <- iota 0 n].
Definition sum n (f : nat -> T) := total [seq f i | i <- iota 0 n].
Definition full n A := tab n (fun i j => if j <= i then at2 A i j else at2 A j i).
Definition short n A := all (fun a => size a <= n) A.
Definition every n (f : nat -> bool) := all f (iota 0 n).
Definition away K a i := add (sub (total (map (@abs T) a)) (abs (at_ a i))) (abs (sub K (at_ a i))).
Definition largest n (f : nat -> T) := foldr max zero [seq f i | i <- iota 0 n].
Definition worst n K A := largest n (fun i => away K (nth [::] A i) i).
Fixpoint plus a b := if a is x :: a' then if b is y :: b' then add x y :: plus a' b' else a else b.
Fixpoint aways K A := if A is a :: A' then let r := [seq abs (dot a b) | b <- A'] in
  add (abs (sub K (dot a a))) (total r) :: plus r (aways K A') else [::].
Definition worst_gram K A := foldr max zero (aways K A).
Definition dominantT n A := every n (fun i => let a := nth [::] A i in le (total (map (@abs T) a)) (add (at_ a i) (at_ a i))).
End Compute.

Local Open Scope ring_scope.
Section Meaning.
Variables (F : realFieldType) (T : numbers).
Implicit Types (a b : seq T) (A B : seq (seq T)) (x y : T).

Definition whole (z : Z) : F := (int_of_Z z)%:~R.
Definition value x : F := whole (val x).
Definition row n a : 'rV[F]_n := \row_j value (at_ a j).
Definition mx m n A : 'M[F]_(m, n) := \matrix_(i, j) value (at2 A i j).

Definition over x m n A : 'M[F]_(m, n) := (value x)^-1 *: mx m n A.

Lemma value0 : value zero = 0. Proof. by rewrite /value val0. Qed.
Lemma valueD x y : value (add x y) = value x + value y.
Proof. by rewrite /value valD /whole -intrD -[Z.add _ _]/(val x + val y) rmorphD. Qed.
Lemma wholeN z : whole (Z.opp z) = - whole z.
Proof. by rewrite /whole -[Z.opp z]/(- z) rmorphN mulrNz. Qed.
Lemma wholeB (u v : Z) : whole (Z.sub u v) = whole u - whole v.
Proof. by rewrite -Z.add_opp_r /whole -[Z.add _ _]/(u + Z.opp v) rmorphD intrD -wholeN. Qed.
Lemma valueB x y : value (sub x y) = value x - value y.
Proof. by rewrite /value valB wholeB. Qed.
Lemma valueM x y : value (mul x y) = value x * value y.
Proof. by rewrite /value valM /whole -intrM -[Z.mul _ _]/(val x * val y) rmorphM. Qed.
Lemma whole_ge0 z : Z.leb Z0 z -> 0 <= whole z.
Proof. by case: z => [|p|p] //= _; rewrite /whole ler0z. Qed.
Lemma value_abs x : value (abs x) = `|value x|.
Proof.
rewrite /value val_abs; case: (val x) => [|p|p]; first by rewrite /= normr0.
  by rewrite /= ger0_norm // whole_ge0.
by rewrite -[Z.neg p]/(Z.opp (Z.pos p)) Z.abs_opp wholeN normrN /= ger0_norm // whole_ge0.
Qed.
Lemma value_le x y : le x y -> value x <= value y.
Proof. by rewrite val_le => /Z.leb_le h; rewrite -subr_ge0 -wholeB; apply/whole_ge0/Z.leb_le/Z.le_0_sub. Qed.
Lemma value_lt x y : lt x y -> value x < value y.
Proof.
rewrite /lt val_le -Z.ltb_antisym => /Z.ltb_lt h; rewrite lt_neqAle; apply/andP; split; last first.
  by apply: value_le; rewrite val_le; apply/Z.leb_le/Z.lt_le_incl.
rewrite -subr_eq0 -opprB oppr_eq0 -wholeB /whole intr_eq0; apply/eqP => e.
have : Z.sub (val y) (val x) = Z0 by apply: (can_inj int_of_ZK); rewrite e.
by move/Z.sub_move_0_r => e'; move: h; rewrite e' => /Z.lt_irrefl.
Qed.
Lemma value_pos x : positive x -> 0 < value x.
Proof. by move/value_lt; rewrite value0. Qed.
Lemma value_max x y : value x <= value (max x y) /\ value y <= value (max x y).
Proof.
rewrite /max; case: ifP => [/value_le h|]; first by rewrite lexx.
by move/negbT => h; split=> //; apply/ltW/value_lt.
Qed.

Lemma value_total n a : (size a <= n)%N -> value (total a) = \sum_(j < n) value (at_ a j).
Proof.
elim: a n => [|x a IH] n; first by rewrite value0 => _; rewrite big1 // => j _; rewrite /at_ nth_nil value0.
by case: n => // n /IH e; rewrite big_ord_recl valueD e.
Qed.

Lemma value_dot n a b : (size a <= n)%N -> value (dot a b) = \sum_(k < n) value (at_ a k) * value (at_ b k).
Proof.
elim: a b n => [|x a IH] b n.
  by rewrite value0 => _; rewrite big1 // => j _; rewrite /at_ nth_nil value0 mul0r.
case: b => [|y b]; first by rewrite value0 => _; rewrite big1 // => j _; rewrite /at_ nth_nil value0 mulr0.
by case: n => // n /= h; rewrite valueD valueM (IH b n) // big_ord_recl.
Qed.

Lemma short_nth n A i : short n A -> (size (nth [::] A i) <= n)%N.
Proof.
move=> /(all_nthP [::]) h; have [iA|iA] := ltnP i (size A); last by rewrite nth_default.
exact: h.
Qed.

Lemma dotE n A B i j : short n A ->
  value (dot (nth [::] A i) (nth [::] B j)) = \sum_(k < n) value (at2 A i k) * value (at2 B j k).
Proof. by move/(short_nth i); apply: value_dot. Qed.

Lemma at_mulT A B i j : at2 (mulT A B) i j = dot (nth [::] A i) (nth [::] B j).
Proof.
rewrite /at2 /at_ /mulT; have [iA|iA] := ltnP i (size A); last first.
  by rewrite [nth [::] (map _ _) i]nth_default ?size_map // nth_nil (nth_default _ iA).
rewrite (nth_map [::]) //; have [jB|jB] := ltnP j (size B); first by rewrite (nth_map [::]).
by rewrite (nth_default _ jB) nth_default ?size_map //; case: (nth _ _ _).
Qed.

Lemma mx_mulT m n p A B : short n A -> mx m p (mulT A B) = mx m n A *m (mx p n B)^T.
Proof.
move=> h; apply/matrixP => i j; rewrite !mxE at_mulT (dotE _ _ _ h).
by apply: eq_bigr => k _; rewrite !mxE.
Qed.

Lemma short_mulT n A B : (size B <= n)%N -> short n (mulT A B).
Proof. by move=> h; rewrite /short all_map; elim: A => //= a A ->; rewrite size_map h. Qed.

Lemma at_tr n A (j : 'I_n) i : at2 (tr n A) j i = at2 A i j.
Proof.
rewrite /at2 /tr (nth_map 0%N) ?size_iota // nth_iota // /at_; have [iA|iA] := ltnP i (size A).
  by rewrite (nth_map [::]).
by rewrite nth_default ?size_map // (nth_default [::] iA) nth_nil.
Qed.

Lemma mx_tr m n A : mx n m (tr n A) = (mx m n A)^T.
Proof. by apply/matrixP => i j; rewrite !mxE at_tr. Qed.

Lemma short_tr n A : short (size A) (tr n A).
Proof. by rewrite /short all_map; apply/allP => j _ /=; rewrite size_map. Qed.

Lemma at_tab n f (i j : 'I_n) : at2 (tab n f) i j = f i j :> T.
Proof. by rewrite /at2 /at_ /tab (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota. Qed.

Lemma size_tab n (f : nat -> nat -> T) : size (tab n f) = n.
Proof. by rewrite size_map size_iota. Qed.

Lemma short_tab n (f : nat -> nat -> T) : short n (tab n f).
Proof. by rewrite /short all_map; apply/allP => j _ /=; rewrite size_map size_iota. Qed.

Lemma full_sym n A : (mx n n (full n A))^T = mx n n (full n A).
Proof.
apply/matrixP => i j; rewrite !mxE !at_tab.
by case: (ltngtP i j) => // /val_inj ->.
Qed.

Lemma value_sum n (f : nat -> T) : value (sum n f) = \sum_(i < n) value (f i).
Proof.
rewrite -(big_mkord xpredT (fun i => value (f i))) /index_iota subn0 /sum /total.
by elim: (iota 0 n) => [|i s IH]; [rewrite big_nil value0 | rewrite big_cons -IH -valueD].
Qed.

Lemma everyP n f : every n f -> forall i : 'I_n, f i.
Proof. by move=> /allP h i; apply: h; rewrite mem_iota /=. Qed.

Lemma value_inner m n A B : (size A <= m)%N -> short n A ->
  value (inner_of A B) = \tr (mx m n A *m (mx m n B)^T).
Proof.
move=> hm hA; have -> : \tr (mx m n A *m (mx m n B)^T) = \sum_(i < m) value (dot (nth [::] A i) (nth [::] B i)).
  by apply: eq_bigr => i _; rewrite (dotE _ _ _ hA) !mxE; apply: eq_bigr => k _; rewrite !mxE.
elim: A B m hm {hA} => [|a A IH] B m; first by rewrite value0 => _; rewrite big1 // => i _; rewrite nth_nil value0.
case: B => [|b B].
  by rewrite value0 => _; rewrite big1 // => i _; rewrite nth_nil; case: (nth _ _ _) => [|? ?]; rewrite /= value0.
by case: m => // m /IH e; rewrite big_ord_recl /= valueD e.
Qed.

Lemma value_totals n A i : short n A -> value (total (map (@abs T) (nth [::] A i))) = \sum_(j < n) `|value (at2 A i j)|.
Proof.
move=> /(short_nth i) h; rewrite (@value_total n) ?size_map //; apply: eq_bigr => j _.
rewrite /at2 /at_; have [ji|ji] := ltnP j (size (nth [::] A i)); first by rewrite (nth_map zero) // value_abs.
by rewrite [nth zero (map _ _) j]nth_default ?size_map // (nth_default _ ji) value0 normr0.
Qed.

Lemma largestP n (f : nat -> T) (i : 'I_n) : value (f i) <= value (largest n f).
Proof.
rewrite /largest; have : (i : nat) \in iota 0 n by rewrite mem_iota /=.
elim: (iota 0 n) => [|j s IH] //; rewrite inE /= => h.
have [h0 h1] := value_max (f j) (foldr (@max T) zero [seq f i | i <- s]).
by case/predU1P: h => [-> //|/IH h]; apply: le_trans h h1.
Qed.

Lemma largest_ge0 n (f : nat -> T) : 0 <= value (largest n f).
Proof.
rewrite /largest; elim: (iota 0 n) => [|j s IH] /=; first by rewrite value0.
by apply: le_trans IH _; have [] := value_max (f j) (foldr (@max T) zero [seq f i | i <- s]).
Qed.

Lemma worstP n K A : short n A -> rows_le ((value K)%:M - mx n n A) (value (worst n K A)).
Proof.
move=> h i; apply: le_trans (@largestP n (fun i => away K (nth [::] A i) i) i).
rewrite le_eqVlt; apply/orP; left; apply/eqP; rewrite /away valueD valueB (value_totals _ h) !value_abs valueB.
rewrite -/(at2 A i i) [LHS](bigD1 i) //= [\sum_(j < n) `|value (at2 A i j)|](bigD1 i) //= [`|value (at2 A i i)| + _]addrC addrK.
rewrite [RHS]addrC !mxE eqxx mulr1n; congr (_ + _); apply: eq_bigr => j ij.
by rewrite !mxE eq_sym (negPf ij) mulr0n sub0r normrN.
Qed.

Lemma dotC a b : value (dot a b) = value (dot b a).
Proof. by elim: a b => [|x a IH] [|y b] //=; rewrite !valueD !valueM IH mulrC. Qed.

Lemma value_plus a b j : value (at_ (plus a b) j) = value (at_ a j) + value (at_ b j).
Proof.
rewrite /at_; elim: a b j => [|x a IH] [|y b] [|j] //=; rewrite ?nth_nil ?value0 ?addr0 ?add0r ?valueD //.
Qed.

Lemma value_aways K A i : (i < size A)%N -> value (at_ (aways K A) i) =
  \sum_(j < size A) `|value K *+ (i == j) - value (dot (nth [::] A i) (nth [::] A j))|.
Proof.
elim: A i => // a A IH [|i] h; rewrite big_ord_recl /=.
  rewrite valueD value_abs valueB mulr1n (@value_total (size A)) ?size_map //; congr (_ + _).
  by apply: eq_bigr => j _; rewrite mulr0n sub0r normrN /at_ (nth_map [::]) // value_abs.
rewrite value_plus {}IH // mulr0n sub0r normrN dotC -value_abs; congr (_ + _).
by rewrite /at_ (nth_map [::]).
Qed.

Lemma foldr_max_ge0 a : 0 <= value (foldr (@max T) zero a).
Proof.
elim: a => [|x a IH] /=; first by rewrite value0.
by apply: le_trans IH _; have [] := value_max x (foldr (@max T) zero a).
Qed.

Lemma worst_ge a i : value (at_ a i) <= value (foldr (@max T) zero a).
Proof.
elim: a i => [|x a IH] i; first by rewrite /at_ nth_nil value0.
have [h0 h1] := value_max x (foldr (@max T) zero a).
by case: i => [|i] //=; apply: le_trans (IH i) h1.
Qed.

(* The worst row of K I - A A^T, each product of two rows formed once. *)
Lemma worst_gramP n m K A : size A = n -> short m A ->
  rows_le ((value K)%:M - mx n m A *m (mx n m A)^T) (value (worst_gram K A)).
Proof.
move=> <- h i; apply: le_trans (worst_ge (aways K A) i); rewrite value_aways // le_eqVlt; apply/orP; left; apply/eqP.
apply: eq_bigr => j _; rewrite (dotE _ i j h) !mxE; congr `|_ - _|; by apply: eq_bigr => k _; rewrite !mxE.
Qed.

Lemma dominantP n A : short n A -> dominantT n A -> dominant (mx n n A).
Proof.
move=> h /everyP d i; have := value_le (d i); rewrite (value_totals _ h) valueD => l.
rewrite !mxE; apply: le_trans l; rewrite le_eqVlt; apply/orP; left; apply/eqP.
by apply: eq_bigr => j _; rewrite !mxE.
Qed.

Lemma rows_scale n (E : 'M[F]_n) k f : 0 <= k -> rows_le E f -> rows_le (k *: E) (k * f).
Proof.
move=> k0 h i; apply: le_trans (ler_wpmul2l k0 (h i)); rewrite mulr_sumr.
by apply: ler_sum => j _; rewrite mxE normrM ger0_norm.
Qed.

Lemma dominant_scale n (E : 'M[F]_n) k : 0 <= k -> dominant E -> dominant (k *: E).
Proof.
move=> k0 h i; rewrite !mxE -mulrDr; apply: le_trans (ler_wpmul2l k0 (h i)); rewrite mulr_sumr.
by apply: ler_sum => j _; rewrite mxE normrM ger0_norm.
Qed.
End Meaning.
