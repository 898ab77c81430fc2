(* Certificates for Coupling.v. That matrices of the recursion are such is in Recursion.v.

   A Boolean in integers: [check] computes, of a system, prices, policies and matrices Pi in integers
   over common denominators, whether they are a certificate; if it is true, the view is mu-GDP with the
   squared mu that it states ([partial_check_sound]). No inverse is trusted and no rounding assumed: whether a
   matrix is positive semidefinite is decided by subtracting squares from it, which are found by
   integer square roots and need not be right, until rows of what is left are dominated by their
   diagonal. *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Adaptive Coupling.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

(* Matrices of integers, by rows. *)
Section Compute.
Implicit Types (A B : seq (seq Z)) (v : seq Z).
Definition at_row v i : Z := nth Z0 v i.
Definition get A i j : Z := at_row (nth [::] A i) j.
Definition tab m n (f : nat -> nat -> Z) := mkseq (fun i => mkseq (f i) n) m.
Definition sumZ n (f : nat -> Z) := foldr (fun k a => Z.add (f k) a) Z0 (iota 0 n).
Definition every n (f : nat -> bool) := all f (iota 0 n).
Definition product m k n A B := tab m n (fun i j => sumZ k (fun l => Z.mul (get A i l) (get B l j))).
Definition transposed m n A := tab n m (fun i j => get A j i).

(* Twice a diagonal entry is at least the sum of the others of its row and of its column. *)
Definition dominated n A := every n (fun i =>
  Z.leb (sumZ n (fun j => if i == j then Z0 else Z.add (Z.abs (get A i j)) (Z.abs (get A j i))))
        (Z.mul 2 (get A i i))).

(* About the row of a Cholesky factor of A less slack I. *)
Definition guess n slack A k :=
  let root := Z.sqrt (Z.sub (get A k k) slack) in
  mkseq (fun j => Z.div (Z.sub (get A k j) (if j == k then slack else Z0)) root) n.
Definition minus_square n A v := tab n n (fun i j => Z.sub (get A i j) (Z.mul (at_row v i) (at_row v j))).
Fixpoint semidefinite_from n slack steps k A :=
  if steps is s.+1 then semidefinite_from n slack s k.+1 (minus_square n A (guess n slack A k))
  else dominated n A.
Definition semidefinite n slack A := semidefinite_from n slack n 0 A.

(* A system that is the same at every step, over unitW; answers over unitA, policies over unitY,
   Pi and all prices over unitP. [balance] keeps numbers of one size, and [slack] is what
   rounding may take from a diagonal: any numbers do. *)
Record certificate := Certificate {
  horizon : nat; first : nat; pattern : seq bool; victim : nat;
  Gamma : seq (seq Z); Theta : seq (seq Z); F : seq (seq Z); Q : seq (seq Z);
  rho : seq Z; radius : seq Z;
  Y : seq (seq (seq Z)); Pi : seq (seq (seq Z));
  node_prices : seq (seq Z); joint_price : seq Z; record_price : seq Z;
  unitW : Z; unitA : Z; unitY : Z; unitP : Z; balance : Z; slack : Z }.

Section Check.
Variables (n r p : nat) (d : certificate).
Definition participates t := nth false (pattern d) t.
Definition Y_at t := nth [::] (Y d) t.
Definition Pi_at t := nth [::] (Pi d) t.
Definition price_at t i := get (node_prices d) t i.
Definition together_at t i := if i == victim d then at_row (joint_price d) t else price_at t i.

Definition hidden_ok t := let seen := product p r n (Theta d) (Y_at t) in
  every p (fun i => every n (fun j => Z.eqb (Z.add (Z.mul (unitY d) (get (Gamma d) i j)) (get seen i j)) Z0)).

(* F + Q Y, over unitW unitY. *)
Definition loop_at t := let moved := product n r n (Q d) (Y_at t) in
  tab n n (fun i j => Z.add (Z.mul (unitY d) (get (F d) i j)) (get moved i j)).

(* The inequality of a step, as a form in the difference of answers and in what is unknown of the
   next ones, over unitP (unitW unitY unitA)^2. *)
Definition block t :=
  let M := loop_at t in let Mt := transposed n n M in
  let ahead := Pi_at t.+1 in
  let G := tab n n (fun i j => Z.add
    (Z.mul (Z.mul (at_row (rho d) i) (get ahead i j)) (at_row (rho d) j))
    (if i == j then Z.mul (price_at t.+1 i) (Z.mul (at_row (radius d) i) (at_row (radius d) i)) else Z0)) in
  let GM := product n n n Mt (product n n n G M) in
  let YY := product n r n (transposed r n (Y_at t)) (Y_at t) in
  let right := product n n n Mt (tab n n (fun i j => Z.mul (at_row (rho d) i) (get ahead i j))) in
  let left := product n n n (tab n n (fun i j => Z.mul (get ahead i j) (at_row (rho d) j))) M in
  let scale := Z.mul (Z.mul (unitW d) (unitY d)) (unitA d) in
  let paid := Z.mul (unitW d) (unitA d) in
  tab (n + n) (n + n) (fun i j =>
    if (i < n)%N then
      if (j < n)%N then
        Z.sub (Z.sub (Z.mul (Z.mul scale scale) (get (Pi_at t) i j))
                     (Z.mul (Z.mul (unitP d) (Z.mul paid paid)) (get YY i j))) (get GM i j)
      else Z.opp (Z.mul (balance d) (get right i (j - n)))
    else
      if (j < n)%N then Z.opp (Z.mul (balance d) (get left (i - n) j))
      else Z.mul (Z.mul (balance d) (balance d))
             (Z.sub (if i == j then together_at t.+1 (i - n) else Z0) (get ahead (i - n) (j - n)))).

Definition prices_ok t := let k := at_row (record_price d) t in
  let c := price_at t (victim d) in let b := at_row (joint_price d) t in
  every n (fun i => Z.leb Z0 (price_at t i)) &&
  if participates t then Z.ltb Z0 k && Z.leb (Z.mul b (Z.add c k)) (Z.mul c k) else Z.leb b c.

Definition check := [&& (first d < horizon d)%N, (victim d < n)%N,
  every (first d) (fun t => ~~ participates t), every (horizon d) hidden_ok,
  every (horizon d) (fun t => (t < first d)%N || semidefinite (n + n) (slack d) (block t)) &
  every (horizon d) (fun t => (t <= first d)%N || prices_ok t)] &&
  [&& Z.ltb Z0 (unitW d), Z.ltb Z0 (unitA d), Z.ltb Z0 (unitY d), Z.ltb Z0 (unitP d), Z.ltb Z0 (balance d),
  Z.leb Z0 (get (Pi_at (first d)) (victim d) (victim d)),
  size (Pi d) == horizon d & size (node_prices d) == horizon d].

(* The squared mu, over unitP. *)
Definition squared_mu := Z.add (get (Pi_at (first d)) (victim d) (victim d))
  (sumZ (horizon d) (fun t => if (first d < t)%N && participates t then at_row (record_price d) t else Z0)).
End Check.
End Compute.

Local Open Scope ring_scope.

Section Integers.
Variable R : realFieldType.
Definition zr (z : Z) : R := (int_of_Z z)%:~R.

Lemma zrD x y : zr (Z.add x y) = zr x + zr y.
Proof. by rewrite /zr -intrD -[Z.add x y]/(x + y) rmorphD. Qed.
Lemma zrN x : zr (Z.opp x) = - zr x.
Proof. by rewrite /zr -[Z.opp x]/(- x) rmorphN mulrNz. Qed.
Lemma zrB x y : zr (Z.sub x y) = zr x - zr y.
Proof. by rewrite -Z.add_opp_r zrD zrN. Qed.
Lemma zrM x y : zr (Z.mul x y) = zr x * zr y.
Proof. by rewrite /zr -intrM -[Z.mul x y]/(x * y) rmorphM. Qed.
Lemma zr_gt0 x : Z.ltb Z0 x -> 0 < zr x.
Proof. by case: x => [|p|p] //= _; rewrite /zr /= ltr0z; apply/ssrnat.ltP/Pos2Nat.is_pos. Qed.
Lemma zr_le x y : Z.leb x y -> zr x <= zr y.
Proof.
move=> /Z.leb_le h; rewrite -subr_ge0 -zrB; have : Z.leb Z0 (Z.sub y x) by apply/Z.leb_le/Z.le_0_sub.
by case: (Z.sub y x) => [|p|p] //= _; rewrite /zr ler0z.
Qed.
Lemma zr_abs x : zr (Z.abs x) = `|zr x|.
Proof.
have [h|h] := Z.leb_spec Z0 x; first by rewrite Z.abs_eq // ger0_norm //; apply/(@zr_le Z0)/Z.leb_le.
rewrite Z.abs_neq ?zrN ?ler0_norm //; last exact: Z.lt_le_incl.
by apply/(@zr_le _ Z0)/Z.leb_le/Z.lt_le_incl.
Qed.
Lemma zr_ratio a b c e : Z.ltb Z0 b -> Z.ltb Z0 e -> Z.leb (Z.mul a e) (Z.mul c b) ->
  zr a / zr b <= zr c / zr e.
Proof.
move=> /zr_gt0 b0 /zr_gt0 e0 /zr_le; rewrite !zrM => less.
by rewrite ler_pdivr_mulr // mulrAC ler_pdivl_mulr.
Qed.
Lemma zr_sum n f : zr (sumZ n f) = \sum_(k < n) zr (f k).
Proof.
rewrite -(big_mkord xpredT (fun k => zr (f k))) /index_iota subn0 /sumZ.
by elim: (iota 0 n) => [|k l IH]; rewrite ?big_nil // big_cons -IH -zrD.
Qed.
Lemma everyP n f : every n f -> forall i, (i < n)%N -> f i.
Proof. by move=> /allP h i ni; apply: h; rewrite mem_iota. Qed.

Definition mx m n A : 'M[R]_(m, n) := \matrix_(i, j) zr (get A i j).
Definition vec n v : 'rV[R]_n := \row_i zr (at_row v i).

Lemma get_tab m n f i j : (i < m)%N -> (j < n)%N -> get (tab m n f) i j = f i j.
Proof. by move=> im jn; rewrite /get /at_row /tab nth_mkseq // nth_mkseq. Qed.
Lemma mx_tab m n f : mx m n (tab m n f) = \matrix_(i, j) zr (f i j).
Proof. by apply/matrixP => i j; rewrite !mxE get_tab. Qed.
Lemma mx_product m k n A B : mx m n (product m k n A B) = mx m k A *m mx k n B.
Proof.
rewrite mx_tab; apply/matrixP => i j; rewrite !mxE zr_sum.
by apply: eq_bigr => l _; rewrite !mxE zrM.
Qed.
Lemma mx_transposed m n A : mx n m (transposed m n A) = (mx m n A)^T.
Proof. by rewrite mx_tab; apply/matrixP => i j; rewrite !mxE. Qed.

(* Bilinear forms. *)
Definition bil m n d (P : 'M[R]_(m, n)) (x : 'M[R]_(m, d)) (y : 'M[R]_(n, d)) : R :=
  \tr (x^T *m P *m y).

Section Bilinear.
Variables (m n d : nat).
Implicit Types (P : 'M[R]_(m, n)) (x : 'M[R]_(m, d)) (y : 'M[R]_(n, d)).
Lemma bilD P P' x y : bil (P + P') x y = bil P x y + bil P' x y.
Proof. by rewrite /bil mulmxDr mulmxDl mxtraceD. Qed.
Lemma bilZ a P x y : bil (a *: P) x y = a * bil P x y.
Proof. by rewrite /bil -scalemxAr -scalemxAl mxtraceZ. Qed.
Lemma bilN P x y : bil (- P) x y = - bil P x y.
Proof. by rewrite -scaleN1r bilZ mulN1r. Qed.
Lemma bil_through k l (A : 'M[R]_(k, m)) (P : 'M[R]_(k, l)) (B : 'M[R]_(l, n)) x y :
  bil (A^T *m P *m B) x y = bil P (A *m x) (B *m y).
Proof. by rewrite /bil trmx_mul !mulmxA. Qed.
Lemma bil_addl P x x' y : bil P (x + x') y = bil P x y + bil P x' y.
Proof.
rewrite /bil (_ : (x + x')^T = x^T + x'^T) ?mulmxDl ?mxtraceD //.
by apply/matrixP => i j; rewrite !mxE.
Qed.
Lemma bil_addr P x y y' : bil P x (y + y') = bil P x y + bil P x y'.
Proof. by rewrite /bil mulmxDr mxtraceD. Qed.
Lemma bil_scalel P a x y : bil P (a *: x) y = a * bil P x y.
Proof.
rewrite /bil (_ : (a *: x)^T = a *: x^T) -?scalemxAl ?mxtraceZ //.
by apply/matrixP => i j; rewrite !mxE.
Qed.
Lemma bil_scaler P a x y : bil P x (a *: y) = a * bil P x y.
Proof. by rewrite /bil -scalemxAr mxtraceZ. Qed.
End Bilinear.

Lemma form_bil n d (P : 'M[R]_n) (x : 'M[R]_(n, d)) : form P x = bil P x x.
Proof. by []. Qed.

Lemma form_sum n (P : 'M[R]_n) (x : 'cV[R]_n) : form P x = \sum_i \sum_j P i j * (x i 0 * x j 0).
Proof.
rewrite /form /mxtrace big_ord1 mxE exchange_big; apply: eq_bigr => j _; rewrite mxE big_distrl.
by apply: eq_bigr => i _ /=; rewrite !mxE mulrAC mulrC.
Qed.

Lemma form_diag n d (w : 'rV[R]_n) (x : 'M[R]_(n, d)) : form (diag_mx w) x = weighed (fun i => w 0 i) x.
Proof.
rewrite form_columns weighed_columns; apply: eq_bigr => j _; rewrite form_sum /weighed.
apply: eq_bigr => i _; rewrite (bigD1 i) //= big1 => [|k ki]; last by rewrite mxE eq_sym (negbTE ki) mul0r.
by rewrite addr0 mxE eqxx mulr1n /sq !big_ord1 !mxE expr2.
Qed.

Lemma form_1 n d (x : 'M[R]_(n, d)) : form 1%:M x = sq x.
Proof.
rewrite -diag_const_mx form_diag sq_rows; apply: eq_bigr => i _.
by rewrite mxE mul1r.
Qed.

Lemma form_block m n d (A : 'M[R]_m) B C (E : 'M[R]_n) (x : 'M[R]_(m, d)) (f : 'M[R]_(n, d)) :
  form (block_mx A B C E) (col_mx x f) = form A x + bil B x f + bil C f x + form E f.
Proof.
rewrite /form /bil tr_col_mx mul_row_block mul_row_col !mulmxDl !mxtraceD.
by rewrite [X in _ = X + _]addrAC !addrA.
Qed.

Lemma sq_scale m n a (A : 'M[R]_(m, n)) : sq (a *: A) = a ^+ 2 * sq A.
Proof.
rewrite /sq mulr_sumr; apply: eq_bigr => i _; rewrite mulr_sumr; apply: eq_bigr => j _.
by rewrite mxE exprMn.
Qed.

Definition psd n (P : 'M[R]_n) := forall x : 'cV_n, 0 <= form P x.

Lemma dominated_psd n A : dominated n A -> psd (mx n n A).
Proof.
move=> /everyP h x; rewrite form_sum -(pmulr_rge0 _ (ltr0n _ 2)).
pose a i j : R := if i == j :> 'I_n then 0 else `|mx n n A i j|.
have rows i : \sum_j (a i j + a j i) <= 2%:R * mx n n A i i.
  have := zr_le (h i (ltn_ord i)); rewrite zrM zr_sum mxE; apply: le_trans.
  rewrite le_eqVlt; apply/orP; left; apply/eqP/eq_bigr => j _; rewrite /a !mxE -[(i == j :> nat)]/(i == j).
  by rewrite [j == i]eq_sym; case: eqP => _; rewrite ?addr0 // zrD !zr_abs.
apply: le_trans (_ : \sum_i (2%:R * mx n n A i i - \sum_j (a i j + a j i)) * x i 0 ^+ 2 <= _).
  by apply: sumr_ge0 => i _; rewrite mulr_ge0 ?sqr_ge0 // subr_ge0.
have -> : \sum_i (2%:R * mx n n A i i - \sum_j (a i j + a j i)) * x i 0 ^+ 2
        = \sum_i \sum_j ((if i == j then 2%:R * mx n n A i i else 0) * x i 0 ^+ 2
            - a i j * (x i 0 ^+ 2 + x j 0 ^+ 2)).
  have swap : \sum_i \sum_j a i j * x j 0 ^+ 2 = \sum_i \sum_j a j i * x i 0 ^+ 2 by rewrite exchange_big.
  rewrite (eq_bigr (fun i => 2%:R * mx n n A i i * x i 0 ^+ 2 - \sum_j a i j * x i 0 ^+ 2
      - \sum_j a j i * x i 0 ^+ 2)); last first.
    by move=> i _; rewrite mulrBl big_split [(_ + _) * x i 0 ^+ 2]mulrDl opprD addrA !mulr_suml.
  rewrite [LHS]sumrB -swap -sumrB; apply: eq_bigr => i _.
  rewrite -addrA -opprD -big_split /= sumrB; congr (_ - _).
    rewrite (bigD1 i) //= eqxx big1 ?addr0 // => j ji; by rewrite eq_sym (negbTE ji) mul0r.
  by apply: eq_bigr => j _; rewrite mulrDr.
rewrite mulr_sumr; apply: ler_sum => i _; rewrite mulr_sumr; apply: ler_sum => j _.
rewrite /a; case: eqP => [<- | _].
  by rewrite mul0r subr0 -mulrA expr2.
rewrite mul0r sub0r -subr_ge0 opprK; set p := x i 0; set q := x j 0; set m := mx n n A i j.
have hm : - (`|m| * (2%:R * `|p * q|)) <= 2%:R * (m * (p * q)).
  by rewrite mulrCA -mulrN ler_wpmul2l // -normrM ler_oppl ler_normr lexx orbT.
apply: le_trans (_ : 0 <= `|m| * (p ^+ 2 + q ^+ 2) - `|m| * (2%:R * `|p * q|)) _.
  rewrite -mulrBr mulr_ge0 //; have := sqr_ge0 (`|p| - `|q|); rewrite sqrrB !real_normK ?num_real //.
  by rewrite normrM -mulr_natl -addrA [- _ + _]addrC addrA.
by rewrite addrC ler_add2r.
Qed.

Lemma minus_square_psd n A v : psd (mx n n (minus_square n A v)) -> psd (mx n n A).
Proof.
move=> h x; have -> : mx n n A = mx n n (minus_square n A v) + (vec n v)^T *m 1%:M *m vec n v.
  apply/matrixP => i j; rewrite mx_tab !mxE big_ord1 zrB zrM mulmx1 !mxE.
  by rewrite [zr _ * _]mulrC mulrC subrK.
by rewrite form_bil bilD addr_ge0 ?h // bil_through -form_bil form_1 sq_ge0.
Qed.

Lemma semidefinite_psd n slack A : semidefinite n slack A -> psd (mx n n A).
Proof.
rewrite /semidefinite; have: forall steps k B, semidefinite_from n slack steps k B -> psd (mx n n B).
  elim=> [|s IH] k B; first exact: dominated_psd.
  by move=> /IH; apply: minus_square_psd.
exact.
Qed.
End Integers.

Section Sound.
Variables (R : realFieldType) (n r p : nat) (c : certificate) (q : 'I_n).
Hypothesis is_q : victim c = q.
Local Notation zr := (zr R).
Local Notation over k A := ((zr k)^-1 *: A).

(* The certificate in numbers. *)
Definition real_Gamma (t : nat) := over (unitW c) (mx R p n (Gamma c)).
Definition real_Theta (t : nat) := over (unitW c) (mx R p r (Theta c)).
Definition real_F (t : nat) := over (unitW c) (mx R n n (F c)).
Definition real_Q (t : nat) := over (unitW c) (mx R n r (Q c)).
Definition real_Y t := over (unitY c) (mx R r n (Y_at c t)).
Definition real_Pi t := over (unitP c) (mx R n n (Pi_at c t)).
Definition real_rho (i : 'I_n) := (zr (unitA c))^-1 * zr (at_row (rho c) i).
Definition real_radius (i : 'I_n) := (zr (unitA c))^-1 * zr (at_row (radius c) i).
Definition real_price t (i : 'I_n) := (zr (unitP c))^-1 * zr (price_at c t i).
Definition real_joint t := (zr (unitP c))^-1 * zr (at_row (joint_price c) t).
Definition real_record t := (zr (unitP c))^-1 * zr (at_row (record_price c) t).

Section Step.
Variable t : nat.
Hypotheses (posW : 0 < zr (unitW c)) (posA : 0 < zr (unitA c)) (posY : 0 < zr (unitY c)).
Hypotheses (posP : 0 < zr (unitP c)) (posB : 0 < zr (balance c)).
Local Notation M := (mx R n n (loop_at n r c t)).
Local Notation P := (mx R n n (Pi_at c t.+1)).
Local Notation Yt := (mx R r n (Y_at c t)).
Let D : 'M[R]_n := diag_mx (vec R n (rho c)).
Let w : 'rV[R]_n := \row_i (zr (price_at c t.+1 i) * zr (at_row (radius c) i) ^+ 2).
Let joint : 'rV[R]_n := \row_i zr (together_at c t.+1 i).
Let scale := zr (unitW c) * zr (unitY c) * zr (unitA c).

Lemma block_is : mx R (n + n) (n + n) (block n r c t) = block_mx
  (scale ^+ 2 *: mx R n n (Pi_at c t)
   + - ((zr (unitP c) * (zr (unitW c) * zr (unitA c)) ^+ 2) *: (Yt^T *m 1%:M *m Yt))
   + - (M^T *m (D^T *m P *m D + diag_mx w) *m M))
  (- (zr (balance c) *: (M^T *m (D^T *m P *m 1%:M) *m 1%:M)))
  (- (zr (balance c) *: (1%:M^T *m (1%:M^T *m P *m D) *m M)))
  (zr (balance c) ^+ 2 *: (diag_mx joint + - P)).
Proof.
have entry m k A (i : 'I_m) (j : 'I_k) : zr (get A i j) = mx R m k A i j by rewrite mxE.
have eD : D^T = D by rewrite tr_diag_mx.
have same (i j : 'I_n) : (i == j :> nat) = (i == j) by [].
apply/matrixP => i j; rewrite mx_tab mxE; case: (split_ordP i) => i' ->; case: (split_ordP j) => j' ->.
- rewrite block_mxEul /= 2!zrB !zrM !(entry n n) !mx_product !mx_transposed mulmx1 mx_tab.
  rewrite [RHS]mxE [X in _ = X + _]mxE; congr (_ + _ + _).
  + by rewrite [RHS]mxE /scale; congr (_ * _); ring.
  + by rewrite [RHS]mxE [X in _ = - X]mxE expr2.
  rewrite [RHS]mxE mulmxA; congr (- (_ *m _ *m _) _ _); rewrite eD mul_diag_mx mul_mx_diag.
  apply/matrixP => k l; rewrite !mxE zrD !zrM same; congr (_ + _).
  by case: (_ == _); rewrite ?mulr0n ?mulr1n // !zrM expr2.
- rewrite block_mxEur /= ?ltn_ord ?ltnNge ?leq_addr /= addKn zrN zrM (entry n n) mx_product mx_transposed mx_tab.
  rewrite !mulmx1 [RHS]mxE [X in _ = - X]mxE; congr (- (_ * (_ *m _) _ _)); rewrite eD mul_diag_mx.
  by apply/matrixP => k l; rewrite !mxE zrM.
- rewrite block_mxEdl /= ?ltn_ord ?ltnNge ?leq_addr /= addKn zrN zrM (entry n n) mx_product mx_tab.
  rewrite trmx1 !mul1mx [RHS]mxE [X in _ = - X]mxE; congr (- (_ * (_ *m _) _ _)); rewrite mul_mx_diag.
  by apply/matrixP => k l; rewrite !mxE zrM.
rewrite block_mxEdr /= ?ltnNge ?leq_addr /= !addKn zrM zrM zrB eqn_add2l same !mxE -expr2.
by congr (_ * (_ - _)); case: (_ == _).
Qed.

Lemma real_loop : loop real_F real_Q real_Y t = over (unitW c) (over (unitY c) M).
Proof.
rewrite /loop /real_F /real_Q /real_Y -scalemxAl -scalemxAr -scalerDr; congr (_ *: _).
rewrite mx_tab; apply/matrixP => i j; rewrite !mxE zrD zrM mulrDr mulKf ?gt_eqF //; congr (_ + _ * _).
have := mx_product R n r n (Q c) (Y_at c t).
by move/matrixP => /(_ i j); rewrite !mxE => ->.
Qed.

Lemma step_sound : semidefinite (n + n) (slack c) (block n r c t) ->
  step_holds real_F real_Q q real_Y real_rho real_radius real_Pi real_price real_joint t.
Proof.
move=> /(@semidefinite_psd R) h x e /=; rewrite real_loop.
set v := M *m x; pose S := D *m v.
have scale0 : scale != 0 by rewrite gt_eqF // !mulr_gt0.
pose f := (scale / zr (balance c)) *: e; have block0 := h (col_mx x f).
rewrite block_is form_block !form_bil !(bilD, bilN, bilZ, bil_through) -!form_bil in block0.
rewrite form_1 !form_diag !mul1mx -/v -/S in block0.
move: block0; have -> : form P f = (scale / zr (balance c)) ^+ 2 * form P e.
  by rewrite !form_bil bil_scalel bil_scaler mulrA -expr2.
have -> : weighed (fun i => joint 0 i) f
        = (scale / zr (balance c)) ^+ 2 * weighed (together q real_price real_joint t.+1) e * zr (unitP c).
  rewrite /weighed mulr_sumr mulr_suml; apply: eq_bigr => i _.
  rewrite linearZ /= sq_scale mxE /together_at /together is_q /real_price /real_joint.
  rewrite -[(i == q :> nat)]/(i == q); case: eqP => _; field; rewrite ?gt_eqF //.
rewrite bil_scalel bil_scaler -!scalemxAl !sq_scale -/v.
have -> : weighed (fun i => real_price t.+1 i * real_radius i ^+ 2) (over (unitW c) (over (unitY c) v))
   = weighed (fun i => w 0 i) v / (zr (unitP c) * scale ^+ 2).
  rewrite /weighed mulr_suml; apply: eq_bigr => i _; rewrite !linearZ /= !sq_scale mxE.
  rewrite /real_price /real_radius /scale; field; rewrite ?gt_eqF //.
have -> : form (real_Pi t.+1) (scaled real_rho (over (unitW c) (over (unitY c) v)) + e)
   = (zr (unitP c))^-1 * (form P S / scale ^+ 2 + bil P S e / scale + bil P e S / scale + form P e).
  have -> : scaled real_rho (over (unitW c) (over (unitY c) v)) = scale^-1 *: S.
    apply/matrixP => i j; rewrite ord1 /S /D mul_diag_mx !mxE.
    rewrite /real_rho /scale; field; rewrite ?gt_eqF //.
  rewrite form_bil bilZ bil_addl !bil_addr !bil_scalel !bil_scaler -!form_bil; congr (_ * _); field.
  by [].
rewrite [form (real_Pi t) x]form_bil /real_Pi bilZ -form_bil => block0.
rewrite -subr_ge0 -(pmulr_rge0 _ (mulr_gt0 posP (exprn_gt0 2 (_ : 0 < scale)))) ?mulr_gt0 //.
move: block0; congr (_ <= _); rewrite /scale; field; rewrite ?gt_eqF //.
Qed.
End Step.

(* The run: initial states, answers and the record's part are any that keep to what is asked. *)
Section Run.
Variables (d : nat) (start : 'M[R]_(n, d)) (sent : seq 'M[R]_(p, d) -> 'M[R]_(n, d)).
Variables (phi : seq 'M[R]_(p, d) -> 'I_n -> 'rV[R]_d -> 'rV[R]_d).
Variables (part : seq 'M[R]_(p, d) -> 'rV[R]_d -> 'rV[R]_d).
Hypothesis responses : forall h i x y,
  sq (phi h i y - phi h i x - real_rho i *: (y - x)) <= real_radius i ^+ 2 * sq (y - x).
Hypothesis clipped : forall h x, sq (part h x) <= (participates c (size h))%:R.

Definition seen record z :=
  view real_Gamma real_Theta real_F real_Q start q sent phi part (horizon c) record z.
Definition certified := zr (squared_mu c) / zr (unitP c).

Theorem partial_check_sound : check n r p c -> exists u : draws R r d -> draws R r d,
  [/\ predictable u, forall z, seen false (shifted z (u z)) = seen true z &
      forall z, \sum_(t < horizon c) sq (u z t) <= certified].
Proof.
move=> /andP[/and5P[is_first _ /everyP before /everyP hid /andP[/everyP steps /everyP prices]]].
move=> /and5P[/(@zr_gt0 R) posW /(@zr_gt0 R) posA /(@zr_gt0 R) posY /(@zr_gt0 R) posP].
move=> /and4P[/(@zr_gt0 R) posB start0 sizePi sizec].
exists (shift real_Gamma real_Theta real_F real_Q start q sent phi part real_Y); split.
- exact: shift_ahead.
- apply: views_agree => t /hid /everyP ok.
  have canceled : zr (unitY c) *: mx R p n (Gamma c) + mx R p r (Theta c) *m mx R r n (Y_at c t) = 0.
    apply/matrixP => i j; rewrite -mx_product !mxE -zrM -zrD.
    by have /everyP/(_ j (ltn_ord j))/Z.eqb_eq -> := ok i (ltn_ord i).
  rewrite /real_Gamma /real_Theta /real_Y -scalemxAl -scalemxAr -scalerDr.
  rewrite -[mx R p n _](scalerK (lt0r_neq0 posY)) -scalerDr canceled !scaler0 //.
move=> z; apply: le_trans (energy_bound real_Gamma real_Theta start sent responses clipped (Pi := real_Pi)
  (c := real_price) (b := real_joint) (k := real_record) (first := first c) _ _ _ _ _ _ _ z) _.
- by move=> t /before.
- by [].
- move=> t /andP[ft tT]; apply: step_sound => //.
  by have := steps t tT; rewrite ltnNge ft.
- move=> t /andP[ft tT]; have := prices t tT; rewrite leqNgt ft /= => /andP[/everyP costs joint].
  have invP : 0 < (zr (unitP c))^-1 by rewrite invr_gt0.
  split=> [i | ]; first by apply: mulr_ge0; [exact: ltW | apply: (zr_le R (costs i (ltn_ord i)))].
  move: joint; rewrite is_q; case: ifP => _.
    move=> /andP[/(@zr_gt0 R) k0 /(zr_le R)]; rewrite !zrM zrD => less; split; first exact: mulr_gt0.
    rewrite /real_joint /real_price /real_record -mulrDr mulrACA [X in _ <= X]mulrACA.
    by rewrite ler_pmul2l ?mulr_gt0.
  by move=> /(zr_le R) less; rewrite /real_joint /real_price ler_pmul2l.
- rewrite /real_Pi (_ : Pi_at c _ = [::]); last by rewrite /Pi_at nth_default ?(eqP sizePi).
  by apply/matrixP => i j; rewrite !mxE /get /at_row !nth_nil; apply: mulr0.
- move=> i; rewrite /real_price /price_at /get [nth [::] _ _]nth_default ?(eqP sizec) //.
  by rewrite /at_row nth_nil; apply: mulr0.
- rewrite mxE mulr_ge0 ?invr_ge0 ?(ltW posP) // mxE -is_q; exact: (zr_le R start0).
rewrite /certified /squared_mu zrD zr_sum mulrDl ler_add //.
  by rewrite !mxE -is_q mulrC.
rewrite (@big_nat_widenl _ _ _ _ 0) // big_mkcond big_mkord mulr_suml; apply: ler_sum => t _.
rewrite andbC; case: ifP => _; last by rewrite mul0r.
by rewrite /real_record mulrC.
Qed.

(* With lemma 1 and post-processing, the hypothesis of Adaptive.v. *)
Corollary partial_check_gdp gdp : gdp_of_shift (horizon c) gdp -> check n r p c ->
  gdp _ certified (seen false) (seen true).
Proof.
move=> gaussian /partial_check_sound [u [ahead same paid]]; apply: gaussian ahead paid same => z z' agree.
exact: view_local.
Qed.
End Run.
End Sound.
Print Assumptions partial_check_gdp.
