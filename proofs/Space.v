(* Designs over nodes: one Boolean of whole numbers that proves noise feasible and optimal up to a gap.

   feasible      R > 0, [R^-1]_ii <= tau_i, and R_ii below the cap and above the floor, where there are such
   certificate   the inequalities that suffice, over any ordered field
   check         the same of whole numbers: what the file of a design holds, and witnesses that anybody may have found
   check_sound   where the Boolean is true, R is feasible, its objective tr(W^T W R) is the one claimed to 1e-9, and
                 no feasible covariance has less than objective / (gn / gd) *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Quadratic Bound Enclosure Numbers.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

Section Compute.
Variable T : numbers.

Record design := Design {
  (* In the file: mixing matrix, lower triangle of the covariance, budgets, cap and floor; W is over dW, R and its
     limits over dR, tau over dt. The objective claimed is po / qo. *)
  W : seq (seq T); R : seq (seq T); tau : seq T; cap : option (seq T); floor : option (seq T);
  dW : T; dR : T; dt : T; po : T; qo : T;
  (* Proved: 1 + gap = gn / gd. *)
  gn : T; gd : T;
  (* Witnesses: M R M^T is about K I, Z^T Z about s I, L^T L at most W^T W + diag(w - u), b^2 multipliers of tau. *)
  M : seq (seq T); L : seq (seq T); Z : seq (seq T); b : seq T; w : seq T; u : seq T; K : T; s : T }.

Definition list_of (o : option (seq T)) := if o is Some a then a else [::].
Definition given (o : option (seq T)) (a : seq T) := if o is Some _ then a else [::].
Definition nonneg n (a : seq T) := every n (fun i => le zero (at_ a i)).

Definition check (billion : T) n (d : design) : bool :=
  let R := full n (R d) in let Mt := tr n (M d) in let Lt := tr n (L d) in let Zt := tr n (Z d) in let Wt := tr n (W d) in
  let w := given (cap d) (w d) in let u := given (floor d) (u d) in let b := at_ (b d) in let tau := at_ (tau d) in
  let H := mulT Wt Wt in let N := mulT Lt Lt in
  let left := sub (K d) (worst n (K d) (mulT (mulT (M d) R) (M d))) in
  let S := add (s d) (worst_gram (s d) Zt) in
  let E := tab n (fun i j => let h := sub (at2 H i j) (at2 N i j) in
                             if i == j then add h (sub (at_ w i) (at_ u i)) else h) in
  let P := mul S (sum n (fun i => mul (mul (b i) (b i)) (tau i))) in
  let alpha := sum n (fun i => mul (b i) (dot (nth [::] Lt i) (nth [::] Zt i))) in
  let paid := sum n (fun i => sub (mul (at_ w i) (at_ (list_of (cap d)) i)) (mul (at_ u i) (at_ (list_of (floor d)) i))) in
  let objective := inner_of (mulT (W d) R) (W d) in
  let scale := mul (mul (dW d) (dW d)) (dR d) in
  [&& [&& positive (dW d), positive (dR d), positive (dt d), positive (gd d), positive (qo d) & le zero (gn d)],
      [&& short n (W d), short n (M d), size (M d) <= n, size (Z d) <= size (L d), nonneg n w & nonneg n u],
      positive left,
      every n (fun i => let m := nth [::] Mt i in le (mul (dot m m) (mul (dR d) (dt d))) (mul left (tau i))),
      (if cap d is Some c then every n (fun i => le (at2 R i i) (at_ c i)) else true),
      (if floor d is Some f then every n (fun i => le (at_ f i) (at2 R i i)) else true),
      dominantT n E, positive S, positive P,
      le (mul (abs (sub (mul objective (qo d)) (mul (po d) scale))) billion) (mul (po d) scale) &
      le (mul (mul objective P) (gd d))
         (mul (gn d) (sub (mul (mul alpha alpha) (mul (dR d) (dt d))) (mul P paid)))].
End Compute.

Local Open Scope ring_scope.
Section Certificate.
Variable F : realFieldType.

Definition feasible n (tau : 'rV[F]_n) (cap floor : option 'rV[F]_n) (R : 'M[F]_n) :=
  [/\ posdef R, forall i, invmx R i i <= tau 0 i,
      forall c, cap = Some c -> forall i, R i i <= c 0 i &
      forall f, floor = Some f -> forall i, f 0 i <= R i i].

Definition limit n (o : option 'rV[F]_n) : 'rV_n := if o is Some c then c else 0.

Theorem certificate m p n (W : 'M_(p, n)) (L Z : 'M_(m, n)) (R M : 'M[F]_n) (b tau w u : 'rV[F]_n) cap floor
    (K f s e g : F) (P := \sum_i b 0 i ^+ 2 * tau 0 i)
    (paid := \sum_i (w 0 i * limit cap 0 i - u 0 i * limit floor 0 i)) :
  R^T = R -> f < K -> rows_le (K%:M - M *m R *m M^T) f ->
  (forall i, \sum_k M k i ^+ 2 <= (K - f) * tau 0 i) ->
  (forall c, cap = Some c -> forall i, R i i <= c 0 i) -> (forall c, floor = Some c -> forall i, c 0 i <= R i i) ->
  (forall i, 0 <= w 0 i) -> (forall i, 0 <= u 0 i) -> (cap = None -> w = 0) -> (floor = None -> u = 0) ->
  dominant (W^T *m W + diag_mx (w - u) - L^T *m L) ->
  rows_le (s%:M - Z^T *m Z) e -> 0 < s + e -> 0 < P -> 0 <= g ->
  \tr (W^T *m W *m R) * ((s + e) * P) <= g * (inner (L *m diag_mx b) Z ^+ 2 - (s + e) * P * paid) ->
  feasible tau cap floor R /\
  forall R', feasible tau cap floor R' -> \tr (W^T *m W *m R) <= g * \tr (W^T *m W *m R').
Proof.
move=> sR fK hM htau hcap hfloor w0 u0 wN uN dom hZ s0 P0 g0 hg.
have d : 0 < K - f by rewrite subr_gt0.
split; first split=> //; first exact: near_posdef sR fK hM.
  by move=> i; rewrite -(ler_pmul2l d); apply: le_trans (near_inverse sR fK hM i) (htau i).
move=> R' [pR' tR' cR' fR']; have k0 : 0 < (s + e) * P by apply: mulr_gt0.
rewrite -(ler_pmul2r k0); apply: le_trans hg _; rewrite -[X in _ <= X]mulrA; apply: ler_wpmul2l => //.
rewrite ler_subl_addr -[_ * (_ * _)]mulrC -mulrDr.
apply: covariance_bound => //; first exact: near_norm; first exact: ltW.
- apply: dominant_psd dom; rewrite linearB linearD /= !trmx_mul !trmxK tr_diag_mx; congr (_ - _).
- move=> i; case e1: cap => [c|] /=; last by rewrite wN // !mxE !mul0r.
  by apply: ler_wpmul2l; [apply: w0 | apply: cR' e1 _].
- move=> i; case e1: floor => [c|] /=; last by rewrite uN // !mxE !mul0r.
  by apply: ler_wpmul2l; [apply: u0 | apply: fR' e1 _].
Qed.
End Certificate.

Section Sound.
Variables (F : realFieldType) (T : numbers) (billion : T) (n : nat).
Notation value := (@value F T).
Definition vector (x : T) (a : seq T) : 'rV[F]_n := (value x)^-1 *: row F n a.

(* What is proved of a design, of the numbers as they stand in its file. *)
Definition proved (d : design T) :=
  let W := over F (dW d) (size (W d)) n (W d) in let R := over F (dR d) n n (full n (R d)) in
  let feasible := feasible (vector (dt d) (tau d)) (omap (vector (dR d)) (cap d)) (omap (vector (dR d)) (floor d)) in
  let objective := value (po d) / value (qo d) in
  [/\ feasible R,
      `|\tr (W^T *m W *m R) - objective| * value billion <= objective &
      forall R', feasible R' -> \tr (W^T *m W *m R) <= value (gn d) / value (gd d) * \tr (W^T *m W *m R')].

Lemma nonnegP (a : seq T) : nonneg n a -> forall i, 0 <= row F n a 0 i.
Proof. by move=> /everyP h i; have := value_le F (h i); rewrite value0 mxE. Qed.


Theorem check_sound d : check billion n d -> proved d.
Proof.
case/and5P => [/and5P [/(value_pos F) dW0 /(value_pos F) dR0 /(value_pos F) dt0 /(value_pos F) gd0 /andP [/(value_pos F) qo0 gn0]]].
have {gn0} := value_le F gn0; rewrite value0 => gn0.
case/and5P => sW sM mM sZ /andP [/nonnegP w0 /nonnegP u0] /(value_pos F) left0 /everyP htau.
case/and5P => hcap hfloor dom /(value_pos F) S0 /andP [/(value_pos F) P0 /andP [hobj hgap]].
set Rl := full n (R d) in hobj hgap hcap hfloor left0 htau.
set wl := given (cap d) (w d) in w0 dom hgap; set ul := given (floor d) (u d) in u0 dom hgap.
pose iW := (value (dW d))^-1; pose iR := (value (dR d))^-1; pose it := (value (dt d))^-1.
have kW : 0 < iW by rewrite invr_gt0.
have kR : 0 < iR by rewrite invr_gt0.
have kt : 0 < it by rewrite invr_gt0.
have sRl : short n Rl by apply: short_tab.
pose W0 := over F (dW d) (size (W d)) n (W d); pose R0 := over F (dR d) n n Rl.
have sR0 : R0^T = R0 by rewrite /R0 /over linearZ /= full_sym.
have tM : mx F n n (mulT (mulT (M d) Rl) (M d)) = mx F n n (M d) *m mx F n n Rl *m (mx F n n (M d))^T.
  have sMR : short n (mulT (M d) Rl) by apply: short_mulT; rewrite size_tab.
  by rewrite (mx_mulT F n n _ sMR) (mx_mulT F n n _ sM) full_sym.
have wM := worstP F (K d) (short_mulT (mulT (M d) Rl) mM); rewrite tM in wM.
set f := worst n (K d) _ in wM left0 htau.
have sMt : short n (tr n (M d)) by apply: sub_all (short_tr n (M d)) => a /leq_trans; apply.
have wZ : rows_le ((value (s d))%:M - (mx F (size (L d)) n (Z d))^T *m mx F (size (L d)) n (Z d))
    (value (worst_gram (s d) (tr n (Z d)))).
  have sZt : short (size (L d)) (tr n (Z d)) by apply: sub_all (short_tr n (Z d)) => a /leq_trans; apply.
  have size_Zt : size (tr n (Z d)) = n by rewrite size_map size_iota.
  by have := worst_gramP F (s d) size_Zt sZt; rewrite mx_tr trmxK.
set e := worst_gram (s d) _ in wZ S0 P0 hgap.
have gram (A : seq (seq T)) : mx F n n (mulT (tr n A) (tr n A)) = (mx F (size A) n A)^T *m mx F (size A) n A.
  by rewrite (mx_mulT F n n _ (short_tr n A)) !mx_tr trmxK.
have scaled_gram (k : F) m (A : 'M_(m, n)) : k ^+ 2 *: (A^T *m A) = (k *: A)^T *m (k *: A).
  have -> : (k *: A)^T = k *: A^T by rewrite linearZ.
  by rewrite -scalemxAl -scalemxAr scalerA expr2.
have tE : mx F n n (tab n (fun i j => let h := sub (at2 (mulT (tr n (W d)) (tr n (W d))) i j)
      (at2 (mulT (tr n (L d)) (tr n (L d))) i j) in if i == j then add h (sub (at_ wl i) (at_ ul i)) else h)) =
    (mx F _ n (W d))^T *m mx F (size (W d)) n (W d) + diag_mx (row F n wl - row F n ul)
    - (mx F _ n (L d))^T *m mx F (size (L d)) n (L d).
  rewrite -!gram; apply/matrixP => i j; rewrite mxE at_tab !mxE.
  have [->|ij] := eqVneq i j; rewrite ?eqxx ?mulr1n; first by rewrite valueD !valueB; ring.
  have ne : (i == j :> nat) = false by move: ij; rewrite -val_eqE => /negPf.
  by rewrite ne mulr0n addr0 valueB.
have price : \sum_i row F n (b d) 0 i ^+ 2 * vector (dt d) (tau d) 0 i =
    it * value (sum n (fun i => mul (mul (at_ (b d) i) (at_ (b d) i)) (at_ (tau d) i))).
  by rewrite (value_sum F) mulr_sumr; apply: eq_bigr => i _; rewrite !mxE !valueM /it; ring.
have hO : \tr (W0^T *m W0 *m R0) = iW ^+ 2 * iR * value (inner_of (mulT (W d) Rl) (W d)).
  have sWR : short n (mulT (W d) Rl) by apply: short_mulT; rewrite size_tab.
  have sz : (size (mulT (W d) Rl) <= size (W d))%N by rewrite size_map.
  rewrite (value_inner F (W d) sz sWR) (mx_mulT F _ n _ sW) full_sym /W0 -scaled_gram /R0 /over.
  by rewrite -scalemxAl -scalemxAr !mxtraceZ mulrA [in RHS]mxtrace_mulC [in RHS]mulmxA.
have opt (o : option (seq T)) i : limit (omap (vector (dR d)) o) 0 i = iR * value (at_ (list_of o) i).
  by case: o => [c|] /=; rewrite !mxE // /at_ nth_nil value0 mulr0.
pose c := @certificate F (size (L d)) (size (W d)) n W0 (iW *: mx F (size (L d)) n (L d)) (mx F (size (L d)) n (Z d)) R0
  (mx F n n (M d)) (row F n (b d)) (vector (dt d) (tau d)) (iW ^+ 2 *: row F n wl) (iW ^+ 2 *: row F n ul)
  (omap (vector (dR d)) (cap d)) (omap (vector (dR d)) (floor d)) (iR * value (K d)) (iR * value f) (value (s d)) (value e)
  (value (gn d) / value (gd d)) sR0.
have [] := c; rewrite {}/c.
- by rewrite ltr_pmul2l // -subr_gt0 -valueB.
- have := rows_scale (ltW kR) wM; congr (rows_le _ _).
  by rewrite scalerBr scale_scalar_mx -scalemxAr -scalemxAl.
- move=> i; have := value_le F (htau i); rewrite /= !valueM (dotE F _ i i sMt) valueB => h.
  rewrite -(ler_pmul2r (mulr_gt0 dR0 dt0)); move: h; congr (_ <= _).
    by congr (_ * _); apply: eq_bigr => k _; rewrite !mxE at_tr expr2.
  by rewrite !mxE /iR; field; rewrite !gt_eqF.
- move=> a; case: (cap d) hcap => // a' /everyP h [<-] i.
  by rewrite !mxE; apply: ler_wpmul2l (value_le F (h i)); apply: ltW.
- move=> a; case: (floor d) hfloor => // a' /everyP h [<-] i.
  by rewrite !mxE; apply: ler_wpmul2l (value_le F (h i)); apply: ltW.
- by move=> i; have := w0 i; rewrite !mxE => h; apply: mulr_ge0 => //; apply: sqr_ge0.
- by move=> i; have := u0 i; rewrite !mxE => h; apply: mulr_ge0 => //; apply: sqr_ge0.
- by rewrite /wl; case: (cap d) => // _; apply/rowP => i; rewrite !mxE /at_ nth_nil value0 mulr0.
- by rewrite /ul; case: (floor d) => // _; apply/rowP => i; rewrite !mxE /at_ nth_nil value0 mulr0.
- have := dominant_scale (sqr_ge0 iW) (dominantP F (short_tab _ _) dom); congr (dominant _).
  rewrite tE scalerBr scalerDr !scaled_gram /W0 /over; congr (_ + _ - _).
  by rewrite -scalerBr linearZ.
- exact: wZ.
- by rewrite -valueD.
- by move: P0; rewrite valueM pmulr_rgt0 // price => p0; apply: mulr_gt0.
- by rewrite divr_ge0 // ltW.
- rewrite price (_ : \sum_i _ = iW ^+ 2 * iR * value (sum n (fun i =>
    sub (mul (at_ wl i) (at_ (list_of (cap d)) i)) (mul (at_ ul i) (at_ (list_of (floor d)) i))))); last first.
    rewrite (value_sum F) mulr_sumr; apply: eq_bigr => j _; rewrite !opt !mxE valueB !valueM /iR; ring.
  rewrite (_ : inner _ _ = iW * value (sum n (fun i =>
    mul (at_ (b d) i) (dot (nth [::] (tr n (L d)) i) (nth [::] (tr n (Z d)) i))))); last first.
    rewrite -scalemxAl mul_mx_diag /inner linearZ /= -scalemxAl mxtraceZ; congr (_ * _); rewrite (value_sum F).
    apply: eq_bigr => i _; rewrite valueM (dotE F _ i i (short_tr n (L d))) mxE mulr_sumr.
    by apply: eq_bigr => k _; rewrite !mxE !at_tr; ring.
  have := value_le F hgap; rewrite !valueM valueB !valueM valueD hO -[value (s d) + value e]valueD.
  set O := value (inner_of _ _); set S := value (add _ _); set P := value (sum _ _); set N := value (sum _ _).
  set Q := value (sum _ _) => h.
  rewrite -(ler_pmul2r (mulr_gt0 (mulr_gt0 (mulr_gt0 (mulr_gt0 dW0 dW0) dR0) dt0) gd0)).
  move: h; congr (_ <= _); rewrite /iW /iR /it; field; by rewrite !gt_eqF.
move=> feas best; split=> //.
have := value_le F hobj; rewrite valueM value_abs valueB !valueM hO => h.
have sc : 0 < value (qo d) * (value (dW d) * value (dW d) * value (dR d)).
  by rewrite !mulr_gt0.
rewrite -(ler_pmul2r sc); move: h; congr (_ <= _); last by field; rewrite gt_eqF.
rewrite [RHS]mulrAC -[X in _ = _ * X * _](gtr0_norm sc) -normrM; congr (`|_| * _).
by rewrite /iW /iR; field; rewrite !gt_eqF.
Qed.
End Sound.
Print Assumptions check_sound.
