(* The recursion of theorem F4 (docs/mathematics/views.md) gives certificates, over every ordered field: backwards from
   Pi_T = 0,

     Psi_t = rho (Pi + Pi S^-1 Pi) rho + c r^2,   Pi_t = Y_t^T Y_t + (F_t + Q_t Y_t)^T Psi_t (F_t + Q_t Y_t),

   Pi that of t + 1 and S = diag(prices) - Pi there. Pi + Pi S^-1 Pi is (Pi^-1 - diag(prices)^-1)^-1 of the page, where
   Pi has an inverse. Y_t is any policy that hides, the best one of the page among them.

   step_of_recursion    one step of it keeps the inequality of Coupling.v, where S > 0
   recursion_bound      where S > 0 at every step after the first, the energy is at most [Pi_s]_qq + sum k_t: no
                        certificate has to be checked *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Require Import Quadratic Adaptive Coupling.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Step.
Variables (R : realFieldType) (n r : nat).
Implicit Types (P : 'M[R]_n) (prices : 'I_n -> R).

Definition diag_of (w : 'I_n -> R) : 'M[R]_n := diag_mx (\row_i w i).
Definition room prices P := diag_of prices - P.
Definition stage prices P := P + P *m invmx (room prices P) *m P.
Definition psi (rho radius c prices : 'I_n -> R) P :=
  (diag_of rho)^T *m stage prices P *m diag_of rho + diag_of (fun i => c i * radius i ^+ 2).
Definition before (rho radius c prices : 'I_n -> R) (Y : 'M_(r, n)) (loop : 'M_n) P :=
  Y^T *m Y + loop^T *m psi rho radius c prices P *m loop.

Lemma formD P P' (x : 'cV[R]_n) : form (P + P') x = form P x + form P' x.
Proof. by rewrite /form mulmxDr mulmxDl mxtraceD. Qed.

Lemma form_congr m (A : 'M[R]_(m, n)) (P : 'M[R]_m) (x : 'cV[R]_n) : form (A^T *m P *m A) x = form P (A *m x).
Proof. by rewrite /form trmx_mul !mulmxA. Qed.

Lemma form_quad P (x : 'cV[R]_n) : form P x = quad P x.
Proof. exact: trace1. Qed.

Lemma form_square (Y : 'M[R]_(r, n)) (x : 'cV[R]_n) : form (Y^T *m Y) x = sq (Y *m x).
Proof.
rewrite form_quad /quad mulmxA -mulmxA -trmx_mul mxE; apply: eq_bigr => i _.
by rewrite big_ord1 mxE expr2.
Qed.

Lemma form_diag (w : 'I_n -> R) (x : 'cV[R]_n) : form (diag_of w) x = weighed w x.
Proof.
rewrite form_quad /quad mul_mx_diag mxE; apply: eq_bigr => i _.
have -> : sq (row i x) = x i 0 ^+ 2 by rewrite /sq !big_ord1 mxE.
by rewrite !mxE [_ * w i]mulrC -mulrA expr2.
Qed.

Lemma scaledE (rho : 'I_n -> R) (x : 'cV[R]_n) : scaled rho x = diag_of rho *m x.
Proof. by rewrite mul_diag_mx; apply/matrixP => i j; rewrite !mxE. Qed.

(* The most that answers can make of it, less their price: a square is completed. *)
Lemma stage_above prices P (w e : 'cV[R]_n) : P^T = P -> posdef (room prices P) ->
  form P (w + e) <= form (stage prices P) w + weighed prices e.
Proof.
move=> sP pS; have uS := posdef_unit pS; have [sS _] := pS; rewrite -form_diag /stage.
have -> : diag_of prices = room prices P + P by rewrite subrK.
move: (room prices P) pS uS sS => S pS uS sS.
pose v := invmx S *m (P *m w); rewrite -subr_ge0.
have -> : form (P + P *m invmx S *m P) w + form (S + P) e - form P (w + e) = form S (e - v).
  have sV : (invmx S)^T = invmx S by rewrite trmx_inv sS.
  have cross : w^T *m P *m e = e^T *m P *m w :> 'M_1.
    have -> : e^T *m P *m w = (e^T *m P *m w)^T by apply/matrixP => i j; rewrite [i]ord1 [j]ord1 [RHS]mxE.
    by rewrite !trmx_mul trmxK sP mulmxA.
  rewrite !formD /form [(w + e)^T]linearD [(e - v)^T]linearB /=.
  have e1 : v^T *m S *m v = w^T *m (P *m invmx S *m P) *m w.
    by rewrite /v !trmx_mul sV sP !mulmxA mulmxKV // .
  have e2 : v^T *m S *m e = w^T *m P *m e by rewrite /v !trmx_mul sV sP -!mulmxA mulKmx // !mulmxA.
  have e3 : e^T *m S *m v = e^T *m P *m w by rewrite /v !mulmxA mulmxK.
  rewrite !(mulmxDl, mulmxDr, mulNmx, mulmxN) e1 e2 e3 cross !(mxtraceD, raddfN) /=; ring.
by rewrite form_quad; apply: posdef_psd pS _.
Qed.

Lemma stage_sym prices P : P^T = P -> (stage prices P)^T = stage prices P.
Proof.
move=> sP; have sS : (room prices P)^T = room prices P by rewrite /room linearB /= sP tr_diag_mx.
by rewrite /stage linearD /= !trmx_mul trmx_inv sS sP mulmxA.
Qed.

Variables (rho radius c prices : 'I_n -> R) (Y : 'M[R]_(r, n)) (loop : 'M[R]_n).

Lemma before_sym P : P^T = P -> (before rho radius c prices Y loop P)^T = before rho radius c prices Y loop P.
Proof.
move=> sP; rewrite /before /psi linearD /= !trmx_mul trmxK linearD /= !trmx_mul trmxK stage_sym //.
by rewrite /diag_of !tr_diag_mx !mulmxA.
Qed.

Theorem step_of_recursion P (x e : 'cV[R]_n) : P^T = P ->
  posdef (room prices P) \/ P = 0 /\ (forall i, 0 <= prices i) ->
  sq (Y *m x) + weighed (fun i => c i * radius i ^+ 2) (loop *m x) + form P (scaled rho (loop *m x) + e)
    <= form (before rho radius c prices Y loop P) x + weighed prices e.
Proof.
move=> sP good; rewrite /before /psi [form (_ + _) x]formD form_square form_congr [form (_ + diag_of _) _]formD.
rewrite form_congr form_diag -scaledE; move: (loop *m x) => y.
rewrite -!addrA ler_add2l addrCA ler_add2l; case: good => [pS | [-> p0]]; first exact: stage_above.
by rewrite !form0 /stage mul0mx mul0mx addr0 form0 add0r; apply: sumr_ge0 => i _; rewrite mulr_ge0 ?sq_ge0.
Qed.

Lemma before_psd P : P^T = P -> psd P -> (forall i, 0 <= c i) -> posdef (room prices P) \/ P = 0 ->
  psd (before rho radius c prices Y loop P).
Proof.
move=> sP pP c0 good x; rewrite -form_quad /before /psi formD form_square form_congr formD form_congr form_diag.
apply: addr_ge0; first exact: sq_ge0; apply: addr_ge0; last first.
  by apply: sumr_ge0 => i _; apply: mulr_ge0 (sq_ge0 _); apply: mulr_ge0 (c0 i) (sqr_ge0 _).
move: (_ *m (loop *m x)) => y; rewrite /stage formD form_quad; apply: addr_ge0; first exact: pP.
case: good => [pS | ->]; last by rewrite mul0mx mul0mx form0.
have -> : P *m invmx (room prices P) *m P = P^T *m invmx (room prices P) *m P by rewrite sP.
by rewrite form_congr form_quad; apply/posdef_psd/posdef_inv.
Qed.
End Step.

Section Recursion.
Variables (R : realFieldType) (n r p d : nat).
Variables (Gamma : nat -> 'M[R]_(p, n)) (Theta : nat -> 'M[R]_(p, r)) (F : nat -> 'M[R]_n) (Q : nat -> 'M[R]_(n, r)).
Variables (start : 'M[R]_(n, d)) (q : 'I_n) (sent : seq 'M[R]_(p, d) -> 'M[R]_(n, d)).
Variables (phi : seq 'M[R]_(p, d) -> 'I_n -> 'rV[R]_d -> 'rV[R]_d) (part : seq 'M[R]_(p, d) -> 'rV[R]_d -> 'rV[R]_d).
Variables (T : nat) (Y : nat -> 'M[R]_(r, n)) (rho radius : 'I_n -> R) (pi : pred nat).
Hypothesis responses : forall h i x y,
  sq (phi h i y - phi h i x - rho i *: (y - x)) <= radius i ^+ 2 * sq (y - x).
Hypothesis clipped : forall h x, sq (part h x) <= (pi (size h))%:R.
Variables (Pi : nat -> 'M[R]_n) (c : nat -> 'I_n -> R) (b k : nat -> R) (first : nat).
Let prices t := together q c b t.
Hypotheses (before_first : forall t, (t < first)%N -> ~~ pi t) (is_first : (first < T)%N).
Hypothesis priced : forall t, (first < t < T)%N -> prices_hold q pi c b k t.
Hypotheses (no_price : forall i, c T i = 0) (end_price : b T = 0).
Hypothesis ends : Pi T = 0.
Hypothesis recursion : forall t, (first <= t < T)%N ->
  Pi t = before rho radius (c t.+1) (prices t.+1) (Y t) (loop F Q Y t) (Pi t.+1).
Hypothesis positive : forall t, (first < t < T)%N -> posdef (room (prices t) (Pi t)).

Lemma recursion_semidefinite m t : (first <= t)%N -> (t + m = T)%N -> (Pi t)^T = Pi t /\ psd (Pi t).
Proof.
elim: m t => [|m IH] t ft.
  by rewrite addn0 => ->; rewrite ends trmx0; split=> // x; rewrite /quad mulmx0 mul0mx mxE.
move=> tm; have tT : (t < T)%N by rewrite -tm addnS ltnS leq_addr.
have [sP pP] := IH t.+1 (leqW ft) (etrans (addSnnS _ _) tm); rewrite recursion ?ft //.
split; first exact: before_sym.
apply: before_psd => // [i|]; have [lt | le] := ltnP t.+1 T.
- by have [] := priced (t := t.+1) _; rewrite ?ltnS ?ft.
- by have -> : t.+1 = T by [apply/eqP; rewrite eqn_leq tT]; rewrite no_price.
- by left; apply: positive; rewrite ltnS ft.
by right; have -> : t.+1 = T by apply/eqP; rewrite eqn_leq tT.
Qed.

Theorem recursion_bound z :
  \sum_(t < T) sq (shift Gamma Theta F Q start q sent phi part Y z t)
    <= Pi first q q + \sum_(first.+1 <= t < T | pi t) k t.
Proof.
apply: (@energy_bound R n r p d Gamma Theta F Q start q sent phi part T Y rho radius pi responses clipped Pi c b k first
  before_first is_first _ priced ends no_price _) => [t range|].
  move=> x e /=; have /andP [ft tT] := range; rewrite (recursion range).
  have [sP _] := recursion_semidefinite (leqW ft) (subnKC tT); apply: step_of_recursion => //.
  have [lt | le] := ltnP t.+1 T; [by left; apply: positive; rewrite ltnS ft | right].
  have -> : t.+1 = T by apply/eqP; rewrite eqn_leq tT.
  by split=> // i; rewrite /prices /together end_price no_price; case: ifP.
have [_ /(_ (delta_mx q 0))] := recursion_semidefinite (leqnn _) (subnKC (ltnW is_first)).
by rewrite /quad trmx_delta -rowE -colE !mxE.
Qed.
End Recursion.
Print Assumptions recursion_bound.
