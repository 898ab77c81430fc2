(* Covariances made of shared seeds (noisedesign.families.shared_seeds): R = sum_c P_c, where P_c >= 0 is zero off the
   nodes of the set c, which may share a seed: own noise is a set of one node, a pairwise seed is one of an edge.

   restrict c A    A with zeros where row or column is no node of c
   shared sets R   R is such a sum over these sets

   structure_bound    (docs/mathematics/structures.md, shared seeds) with L^T L <= H + diag(w) on every set, the bound of
                      theorem A holds of every R of the structure
   check_seeds_sound  one Boolean of whole numbers proves that a covariance is of the structure and feasible, that its
                      objective is the one claimed, and that no covariance of the structure has less but for a gap *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ring.
Require Import Quadratic Bound Enclosure Numbers Space.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

Section Compute.
Variable T : numbers.

Record seeds := Seeds {
  (* In the file: mixing matrix, the sets that may share a seed, lower triangles of the blocks P_c on the nodes of their
     sets, budgets, cap; W is over dW, P and the cap over dR, tau over dt. The objective claimed is po / qo. *)
  W : seq (seq T); sets : seq (seq nat); blocks : seq (seq (seq T)); tau : seq T; cap : option (seq T);
  dW : T; dR : T; dt : T; po : T; qo : T;
  (* Proved: 1 + gap = gn / gd. *)
  gn : T; gd : T;
  (* Witnesses: M R M^T is about K I, Z^T Z about s I; on every set L^T L + D^T D is at most W^T W + diag(w), and
     Q^T Q at most P_c; b^2 multipliers of tau. *)
  M : seq (seq T); L : seq (seq T); Z : seq (seq T); b : seq T; w : seq T; Q : seq (seq (seq T)); D : seq (seq (seq T));
  K : T; s : T }.

Definition within (c : seq nat) i j := (i \in c) && (j \in c).
Definition place n c (A : seq (seq T)) := tab n (fun i j =>
  if within c i j then at2 A (maxn (index i c) (index j c)) (minn (index i c) (index j c)) else zero).
Definition widen n c (A : seq (seq T)) :=
  [seq [seq if j \in c then at_ a (index j c) else zero | j <- iota 0 n] | a <- A].
Definition gramT n (A : seq (seq T)) := mulT (tr n A) (tr n A).
(* On the set c, A has no less than the squares of the rows of B. *)
Definition above n c A B := let N := gramT n (widen n c B) in
  dominantT n (tab n (fun i j => sub (if within c i j then at2 A i j else zero) (at2 N i j))).
Definition covariance n (d : seeds) := let all := [seq place n cP.1 cP.2 | cP <- zip (sets d) (blocks d)] in
  tab n (fun i j => total [seq at2 A i j | A <- all]).

Definition check_seeds (billion : T) n (d : seeds) : bool :=
  let R := covariance n d in let Mt := tr n (M d) in let Lt := tr n (L d) in let Zt := tr n (Z d) in
  let w := given (cap d) (w d) in let b := at_ (b d) in let tau := at_ (tau d) in
  let H := gramT n (W d) in let N := gramT n (L d) in
  let left := sub (K d) (worst n (K d) (mulT (mulT (M d) R) (M d))) in
  let S := add (s d) (worst n (s d) (mulT Zt Zt)) in
  let E := tab n (fun i j => let h := sub (at2 H i j) (at2 N i j) in if i == j then add h (at_ w i) else h) in
  let P := mul S (sum n (fun i => mul (mul (b i) (b i)) (tau i))) in
  let alpha := sum n (fun i => mul (b i) (dot (nth [::] Lt i) (nth [::] Zt i))) in
  let paid := sum n (fun i => mul (at_ w i) (at_ (list_of (cap d)) i)) in
  let objective := inner_of (mulT (W d) R) (W d) in
  let scale := mul (mul (dW d) (dW d)) (dR d) in
  [&& [&& positive (dW d), positive (dR d), positive (dt d), positive (gd d), positive (qo d) & le zero (gn d)],
      [&& short n (W d), short n (M d), size (M d) <= n, size (Z d) <= size (L d), nonneg n w &
          size (blocks d) == size (sets d)],
      positive left,
      every n (fun i => let m := nth [::] Mt i in le (mul (dot m m) (mul (dR d) (dt d))) (mul left (tau i))),
      (if cap d is Some c then every n (fun i => le (at2 R i i) (at_ c i)) else true),
      every (size (sets d)) (fun k => let c := nth [::] (sets d) k in
        above n c (place n c (nth [::] (blocks d) k)) (nth [::] (Q d) k) && above n c E (nth [::] (D d) k)),
      positive S, positive P,
      le (mul (abs (sub (mul objective (qo d)) (mul (po d) scale))) billion) (mul (po d) scale) &
      le (mul (mul objective P) (gd d))
         (mul (gn d) (sub (mul (mul alpha alpha) (mul (dR d) (dt d))) (mul P paid)))].
End Compute.

Local Open Scope ring_scope.
Section Structure.
Variable F : realFieldType.
Implicit Types (n : nat) (c : seq nat) (sets : seq (seq nat)).

Definition restrict n c (A : 'M[F]_n) : 'M_n := \matrix_(i, j) if within c i j then A i j else 0.
Definition shared n sets (R : 'M[F]_n) := exists P : nat -> 'M[F]_n, R = \sum_(k < size sets) P k /\
  forall k, (k < size sets)%N -> [/\ (P k)^T = P k, psd (P k) & restrict (nth [::] sets k) (P k) = P k].

(* Of two semidefinite matrices, of which one is symmetric, the product has no negative trace. *)
Lemma trace_psd_psd n (A B : 'M[F]_n) : A^T = A -> psd A -> psd B -> 0 <= \tr (A *m B).
Proof.
move=> sA pA pB; have more e : 0 < e -> 0 <= \tr (A *m B) + e * \tr B.
  move=> e0; rewrite -mxtraceZ -mul_scalar_mx -mxtraceD -mulmxDl; apply: trace_posdef_psd pB.
  split=> [|x x0]; first by rewrite linearD /= sA tr_scalar_mx.
  by rewrite quadD quad_scalar ltr_paddl // mulr_gt0 ?quad1_gt0.
have t0 : 0 <= \tr B by rewrite -[B]mul1mx; apply: trace_posdef_psd pB; split=> [|x]; [exact: trmx1 | exact: quad1_gt0].
rewrite leNgt; apply/negP => neg.
have t1 : 0 < \tr B + 1 by apply: ltr_paddl t0 ltr01.
have := more (- \tr (A *m B) / (\tr B + 1)); rewrite divr_gt0 ?oppr_gt0 // => /(_ isT).
have -> : \tr (A *m B) + - \tr (A *m B) / (\tr B + 1) * \tr B = \tr (A *m B) / (\tr B + 1) by field; rewrite gt_eqF.
by rewrite leNgt pmulr_llt0 ?invr_gt0 // neg.
Qed.
Lemma trace_restrict n c (A P : 'M[F]_n) : restrict c P = P -> \tr (P *m A) = \tr (P *m restrict c A).
Proof.
move=> e; apply: eq_bigr => i _; rewrite !mxE; apply: eq_bigr => j _; rewrite -e !mxE /within [X in if X then A _ _ else _]andbC.
by case: ifP; rewrite ?mul0r.
Qed.

Lemma shared_trace n sets (A R : 'M[F]_n) : shared sets R ->
  (forall k, (k < size sets)%N -> psd (restrict (nth [::] sets k) A)) -> 0 <= \tr (A *m R).
Proof.
move=> [P [-> hP]] hA; rewrite mxtrace_mulC mulmx_suml raddf_sum; apply: sumr_ge0 => k _ /=.
have [sP pP eP] := hP k (ltn_ord k); rewrite (trace_restrict A eP); exact: trace_psd_psd sP pP (hA k (ltn_ord k)).
Qed.

Theorem structure_bound m n sets (s : F) (H : 'M_n) (L Z : 'M_(m, n)) (b tau w c : 'rV[F]_n) (R : 'M[F]_n)
    (P := \sum_i b 0 i ^+ 2 * tau 0 i) :
  shared sets R -> posdef R -> norm_le s Z -> 0 <= s -> 0 <= P -> (forall i, invmx R i i <= tau 0 i) ->
  (forall k, (k < size sets)%N -> psd (restrict (nth [::] sets k) (H + diag_mx w - L^T *m L))) ->
  (forall i, w 0 i * R i i <= w 0 i * c 0 i) ->
  (inner (L *m diag_mx b) Z) ^+ 2 <= s * P * (\tr (H *m R) + \sum_i w 0 i * c 0 i).
Proof.
move=> sR pR nZ s0 P0 h hL hw; pose z : 'rV[F]_n := 0.
have := @covariance_bound F m n s (L^T *m L) L Z b tau z z z z R pR nZ s0 h.
have p0 : psd (0 : 'M[F]_n) by move=> x; rewrite /quad mulmx0 mul0mx mxE.
have z0 i x : z 0 i * x = 0 by rewrite mxE mul0r.
rewrite subrr linear0 addr0 subrr => /(_ p0) bound; apply: le_trans (bound _ _) _ => [i|i|]; rewrite ?z0 //.
rewrite [X in _ + X]big1 ?addr0 => [|i _]; last by rewrite !z0 subrr.
apply: ler_wpmul2l; first exact: mulr_ge0.
have := shared_trace sR hL; rewrite mulmxBl mulmxDl raddfB raddfD /= subr_ge0 => t; apply: le_trans t _.
rewrite ler_add2l; apply: ler_sum => i _; rewrite mul_diag_mx mxE; exact: hw.
Qed.

Theorem seeds_certificate m p n sets (W : 'M_(p, n)) (L Z : 'M_(m, n)) (R M : 'M[F]_n) (b tau w : 'rV[F]_n) cap
    (K f s e g : F) (P := \sum_i b 0 i ^+ 2 * tau 0 i) (paid := \sum_i w 0 i * limit cap 0 i) :
  shared sets R -> R^T = R -> f < K -> rows_le (K%:M - M *m R *m M^T) f ->
  (forall i, \sum_k M k i ^+ 2 <= (K - f) * tau 0 i) -> (forall a, cap = Some a -> forall i, R i i <= a 0 i) ->
  (forall i, 0 <= w 0 i) -> (cap = None -> w = 0) ->
  (forall k, (k < size sets)%N -> psd (restrict (nth [::] sets k) (W^T *m W + diag_mx w - L^T *m L))) ->
  rows_le (s%:M - Z^T *m Z) e -> 0 < s + e -> 0 < P -> 0 <= g ->
  \tr (W^T *m W *m R) * ((s + e) * P) <= g * (inner (L *m diag_mx b) Z ^+ 2 - (s + e) * P * paid) ->
  feasible tau cap None R /\
  forall R', shared sets R' -> feasible tau cap None R' -> \tr (W^T *m W *m R) <= g * \tr (W^T *m W *m R').
Proof.
move=> hR sR fK hM htau hcap w0 wN dom hZ s0 P0 g0 hg; have d : 0 < K - f by rewrite subr_gt0.
split; first split=> //; first exact: near_posdef sR fK hM.
  by move=> i; rewrite -(ler_pmul2l d); apply: le_trans (near_inverse sR fK hM i) (htau i).
move=> R' hR' [pR' tR' cR' _]; have k0 : 0 < (s + e) * P by apply: mulr_gt0.
rewrite -(ler_pmul2r k0); apply: le_trans hg _; rewrite -[X in _ <= X]mulrA; apply: ler_wpmul2l => //.
rewrite ler_subl_addr -[_ * (_ * _)]mulrC -mulrDr.
apply: structure_bound hR' pR' _ _ _ tR' dom _; [exact: near_norm | exact: ltW | exact: ltW |].
move=> i; case e1: cap => [c|] /=; last by rewrite wN // !mxE !mul0r.
by apply: ler_wpmul2l; [apply: w0 | apply: cR' e1 _].
Qed.
End Structure.

Section Sound.
Variables (F : realFieldType) (T : numbers) (billion : T) (n : nat).
Notation value := (@value F T).

(* What is proved of a design, of the numbers as they stand in its file. *)
Definition proved_seeds (d : seeds T) :=
  let W := over F (dW d) (size (W d)) n (W d) in let R := over F (dR d) n n (covariance n d) in
  let feasible := feasible (vector F n (dt d) (tau d)) (omap (vector F n (dR d)) (cap d)) None in
  let objective := value (po d) / value (qo d) in
  [/\ shared (sets d) R, feasible R,
      `|\tr (W^T *m W *m R) - objective| * value billion <= objective &
      forall R', shared (sets d) R' -> feasible R' ->
        \tr (W^T *m W *m R) <= value (gn d) / value (gd d) * \tr (W^T *m W *m R')].

Lemma mx_gram (A : seq (seq T)) : mx F n n (gramT n A) = (mx F (size A) n A)^T *m mx F (size A) n A.
Proof. by rewrite (mx_mulT F n n _ (short_tr n A)) !mx_tr trmxK. Qed.

Lemma withinC c i j : within c i j = within c j i.
Proof. exact: andbC. Qed.

Lemma place_sym c (A : seq (seq T)) : (mx F n n (place n c A))^T = mx F n n (place n c A).
Proof. by apply/matrixP => i j; rewrite !mxE !at_tab withinC maxnC minnC. Qed.

Lemma place_restrict c (A : seq (seq T)) : restrict c (mx F n n (place n c A)) = mx F n n (place n c A).
Proof. by apply/matrixP => i j; rewrite !mxE !at_tab; case: ifP => w; rewrite ?w ?value0. Qed.

Lemma aboveP c (A B : seq (seq T)) : above n c A B -> (mx F n n A)^T = mx F n n A -> psd (restrict c (mx F n n A)).
Proof.
move=> /(dominantP F (short_tab _ _)) dom sA; set N := widen n c B in dom.
have e : restrict c (mx F n n A) = mx F n n (tab n (fun i j =>
    sub (if within c i j then at2 A i j else zero) (at2 (gramT n N) i j))) + (mx F _ n N)^T *m mx F (size N) n N.
  rewrite -mx_gram; apply/matrixP => i j; rewrite mxE [RHS]mxE [X in _ = X + _]mxE [X in _ = _ + X]mxE at_tab valueB subrK.
  by rewrite mxE; case: ifP; rewrite ?value0.
rewrite e => x; rewrite quadD; apply: addr_ge0; last first.
  by rewrite -[X in X *m _]mulmx1 quad_congr; apply: psd1.
apply: dominant_psd dom x; apply: (addIr ((mx F _ n N)^T *m mx F (size N) n N)).
rewrite -[X in _ + X = _]trmxK -linearD /= trmx_mul trmxK -e.
by apply/matrixP => i j; rewrite !mxE withinC; have /matrixP /(_ i j) := sA; rewrite !mxE => ->.
Qed.

Lemma restrict_scale c (k : F) (A : 'M[F]_n) : restrict c (k *: A) = k *: restrict c A.
Proof. by apply/matrixP => i j; rewrite !mxE; case: ifP; rewrite ?mulr0. Qed.

Lemma psd_scale (k : F) (A : 'M[F]_n) : 0 <= k -> psd A -> psd (k *: A).
Proof. by move=> k0 pA x; rewrite /quad -scalemxAr -scalemxAl mxE; apply: mulr_ge0 (pA x). Qed.

Lemma mx_covariance (d : seeds T) : size (blocks d) = size (sets d) -> mx F n n (covariance n d) =
  \sum_(k < size (sets d)) mx F n n (place n (nth [::] (sets d) k) (nth [::] (blocks d) k)).
Proof.
move=> e; apply/matrixP => i j; rewrite summxE mxE at_tab.
have sz : size (zip (sets d) (blocks d)) = size (sets d) by rewrite size1_zip ?e.
rewrite (@value_total F T (size (sets d))); last by rewrite !size_map sz.
apply: eq_bigr => k _; rewrite mxE /at_ (nth_map [::]) ?size_map ?sz // (nth_map ([::], [::])) ?sz //.
by rewrite nth_zip.
Qed.

Theorem check_seeds_sound d : check_seeds billion n d -> proved_seeds d.
Proof.
case/and5P => [/and5P [/(value_pos F) dW0 /(value_pos F) dR0 /(value_pos F) dt0 /(value_pos F) gd0 /andP [/(value_pos F) qo0 gn0]]].
have {gn0} := value_le F gn0; rewrite value0 => gn0.
case/and5P => sW sM mM sZ /andP [/(nonnegP F) w0 /eqP sB] /(value_pos F) left0 /everyP htau.
case/and5P => hcap /everyP hsets /(value_pos F) S0 /(value_pos F) P0 /andP [hobj hgap].
set Rl := covariance n d in hobj hgap hcap left0 htau.
set wl := given (cap d) (w d) in w0 hsets hgap.
set El := tab n _ in hsets.
pose iW := (value (dW d))^-1; pose iR := (value (dR d))^-1; pose it := (value (dt d))^-1.
have kW : 0 < iW by rewrite invr_gt0.
have kR : 0 < iR by rewrite invr_gt0.
have kt : 0 < it by rewrite invr_gt0.
have sRl : short n Rl by apply: short_tab.
have symR : (mx F n n Rl)^T = mx F n n Rl.
  by rewrite mx_covariance // linear_sum; apply: eq_bigr => k _; rewrite /= place_sym.
pose W0 := over F (dW d) (size (W d)) n (W d); pose R0 := over F (dR d) n n Rl.
have sR0 : R0^T = R0 by rewrite /R0 /over linearZ /= symR.
have hR : shared (sets d) R0.
  exists (fun k => iR *: mx F n n (place n (nth [::] (sets d) k) (nth [::] (blocks d) k))).
  split=> [|k lk]; first by rewrite /R0 /over mx_covariance // scaler_sumr.
  have /andP [h _] := hsets (Ordinal lk); split; first by rewrite linearZ /= place_sym.
    by apply: psd_scale (ltW kR) _; rewrite -place_restrict; apply: aboveP h (place_sym _ _).
  by rewrite restrict_scale place_restrict.
have tM : mx F n n (mulT (mulT (M d) Rl) (M d)) = mx F n n (M d) *m mx F n n Rl *m (mx F n n (M d))^T.
  have sMR : short n (mulT (M d) Rl) by apply: short_mulT; rewrite size_tab.
  by rewrite (mx_mulT F n n _ sMR) (mx_mulT F n n _ sM) symR.
have wM := worstP F (K d) (short_mulT (mulT (M d) Rl) mM); rewrite tM in wM.
set f := worst n (K d) _ in wM left0 htau.
have sMt : short n (tr n (M d)) by apply: sub_all (short_tr n (M d)) => a /leq_trans; apply.
have tZ : mx F n n (mulT (tr n (Z d)) (tr n (Z d))) = (mx F (size (L d)) n (Z d))^T *m mx F (size (L d)) n (Z d).
  have sZt : short (size (L d)) (tr n (Z d)) by apply: sub_all (short_tr n (Z d)) => a /leq_trans; apply.
  by rewrite (mx_mulT F n n _ sZt) !mx_tr trmxK.
have wZ : rows_le ((value (s d))%:M - (mx F (size (L d)) n (Z d))^T *m mx F (size (L d)) n (Z d))
    (value (worst n (s d) (mulT (tr n (Z d)) (tr n (Z d))))).
  by rewrite -tZ; apply: worstP; apply: short_mulT; rewrite size_map size_iota.
set e := worst n (s d) _ in wZ S0 P0 hgap.
have scaled_gram (k : F) m (A : 'M_(m, n)) : k ^+ 2 *: (A^T *m A) = (k *: A)^T *m (k *: A).
  have -> : (k *: A)^T = k *: A^T by rewrite linearZ.
  by rewrite -scalemxAl -scalemxAr scalerA expr2.
have tE : mx F n n El = (mx F _ n (W d))^T *m mx F (size (W d)) n (W d) + diag_mx (row F n wl)
    - (mx F _ n (L d))^T *m mx F (size (L d)) n (L d).
  rewrite -!mx_gram; apply/matrixP => i j; rewrite mxE at_tab !mxE.
  have [->|ij] := eqVneq i j; rewrite ?eqxx ?mulr1n; first by rewrite valueD !valueB; ring.
  have ne : (i == j :> nat) = false by move: ij; rewrite -val_eqE => /negPf.
  by rewrite ne mulr0n addr0 valueB.
have symE : (mx F n n El)^T = mx F n n El.
  by rewrite tE linearB linearD /= !trmx_mul !trmxK tr_diag_mx.
have price : \sum_i row F n (b d) 0 i ^+ 2 * vector F n (dt d) (tau d) 0 i =
    it * value (sum n (fun i => mul (mul (at_ (b d) i) (at_ (b d) i)) (at_ (tau d) i))).
  by rewrite (value_sum F) mulr_sumr; apply: eq_bigr => i _; rewrite !mxE !valueM /it; ring.
have hO : \tr (W0^T *m W0 *m R0) = iW ^+ 2 * iR * value (inner_of (mulT (W d) Rl) (W d)).
  have sWR : short n (mulT (W d) Rl) by apply: short_mulT; rewrite size_tab.
  have sz : (size (mulT (W d) Rl) <= size (W d))%N by rewrite size_map.
  rewrite (value_inner F (W d) sz sWR) (mx_mulT F _ n _ sW) symR /W0 -scaled_gram /R0 /over.
  by rewrite -scalemxAl -scalemxAr !mxtraceZ mulrA [in RHS]mxtrace_mulC [in RHS]mulmxA.
have opt (o : option (seq T)) i : limit (omap (vector F n (dR d)) o) 0 i = iR * value (at_ (list_of o) i).
  by case: o => [c|] /=; rewrite !mxE // /at_ nth_nil value0 mulr0.
have [] := @seeds_certificate F (size (L d)) (size (W d)) n (sets d) W0 (iW *: mx F (size (L d)) n (L d))
  (mx F (size (L d)) n (Z d)) R0 (mx F n n (M d)) (row F n (b d)) (vector F n (dt d) (tau d)) (iW ^+ 2 *: row F n wl)
  (omap (vector F n (dR d)) (cap d)) (iR * value (K d)) (iR * value f) (value (s d)) (value e)
  (value (gn d) / value (gd d)) hR sR0.
- by rewrite ltr_pmul2l // -subr_gt0 -valueB.
- have := rows_scale (ltW kR) wM; congr (rows_le _ _).
  by rewrite scalerBr scale_scalar_mx -scalemxAr -scalemxAl.
- move=> i; have := value_le F (htau i); rewrite /= !valueM (dotE F _ i i sMt) valueB => h.
  rewrite -(ler_pmul2r (mulr_gt0 dR0 dt0)); move: h; congr (_ <= _).
    by congr (_ * _); apply: eq_bigr => k _; rewrite !mxE at_tr expr2.
  by rewrite !mxE /iR; field; rewrite !gt_eqF.
- move=> a; case: (cap d) hcap => // a' /everyP h [<-] i.
  by rewrite !mxE; apply: ler_wpmul2l (value_le F (h i)); apply: ltW.
- by move=> i; have := w0 i; rewrite !mxE => h; apply: mulr_ge0 => //; apply: sqr_ge0.
- by rewrite /wl; case: (cap d) => // _; apply/rowP => i; rewrite !mxE /at_ nth_nil value0 mulr0.
- move=> k lk; have /andP [_ h] := hsets (Ordinal lk).
  move: (psd_scale (sqr_ge0 iW) (aboveP h symE)); rewrite -restrict_scale tE scalerBr scalerDr !scaled_gram.
  by rewrite -[iW ^+ 2 *: diag_mx _]linearZ.
- exact: wZ.
- by rewrite -valueD.
- by move: P0; rewrite valueM pmulr_rgt0 // price => p0; apply: mulr_gt0.
- by rewrite divr_ge0 // ltW.
- rewrite price (_ : \sum_i _ = iW ^+ 2 * iR * value (sum n (fun i =>
    mul (at_ wl i) (at_ (list_of (cap d)) i)))); last first.
    rewrite (value_sum F) mulr_sumr; apply: eq_bigr => j _; rewrite !opt !mxE !valueM /iR; ring.
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
Print Assumptions check_seeds_sound.
