(* Designs over time: one Boolean of whole numbers that proves a strategy feasible and optimal up to a gap.

   feasible      X > 0, sensitive (Patterns.v) on every pattern of participation within its budget, and variances, which
                 are the diagonal of X^-1, below the cap, where there is one
   certificate   the inequalities that suffice, over any ordered field
   check         the same of whole numbers: what the file of a design holds, and witnesses that anybody may have found
   check_time_sound  where the Boolean is true, C is lower triangular, C^T C feasible, its objective tr(H (C^T C)^-1) is the
                 one claimed to one over a billion, and no feasible X has less than objective / (gn / gd) *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import ssrZ ring.
Require Import Quadratic Bound Enclosure Numbers Space Patterns.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory Order.Theory.

Section Compute.
Variable T : numbers.

Record strategy := Strategy {
  (* In the file: lower triangles of H, over dL^2, and of C, over dC; the steps of every pattern of participation, from 0,
     its budget, and the cap of variances, both over dt. The objective claimed is po / qo. *)
  H : seq (seq T); C : seq (seq T); steps : seq (seq nat); tau : seq T; cap : option (seq T); dL : T; dC : T; dt : T; po : T; qo : T;
  (* Proved: 1 + gap = gn / gd. *)
  gn : T; gd : T;
  (* Witnesses: M C^T C M^T is about K I, Z Z^T about s I, L^T L at most H + diag(w), B B^T multipliers; column j of B is
     on the pattern that stands in `on`. *)
  M : seq (seq T); L : seq (seq T); Z : seq (seq T); B : seq (seq T); on : seq nat; w : seq T;
  K : T; s : T }.

Definition used n (Ct : seq (seq T)) (pattern : seq nat) :=
  let steps := [seq i <- iota 0 n | i \in pattern] in
  total [seq total [seq abs (dot (nth [::] Ct i) (nth [::] Ct j)) | j <- steps] | i <- steps].
Definition kept (steps : seq (seq nat)) i (x : T) a := (le x zero && le zero x) || (i \in nth [::] steps a).
Definition square_on a (x : T * nat) := if x.2 == a then mul x.1 x.1 else zero.
Definition price n (d : strategy) a := largest n (fun i => total [seq square_on a x | x <- zip (nth [::] (B d) i) (on d)]).

Definition check_time (billion : T) n (d : strategy) : bool :=
  let p := size (on d) in let k := size (steps d) in
  let Ct := tr n (C d) in let H := full n (H d) in let Lt := tr n (L d) in let m := size (L d) in
  let w := given (cap d) (w d) in let N := mulT Lt Lt in let Mt := tr n (M d) in
  let E := tab n (fun i j => let h := sub (at2 H i j) (at2 N i j) in if i == j then add h (at_ w i) else h) in
  let Pt := tr n (mulT (C d) (M d)) in let f := worst_gram (K d) Pt in let left := sub (K d) f in
  let S := add (s d) (worst_gram (s d) (Z d)) in
  let P := mul S (sum k (fun a => mul (price n d a) (at_ (tau d) a))) in
  let alpha := inner_of (mulT (L d) (tr p (B d))) (Z d) in
  let paid := sum n (fun i => mul (at_ w i) (at_ (list_of (cap d)) i)) in let CC := mul (dC d) (dC d) in
  let objective := mul (inner_of (mulT (M d) H) (M d)) (mul CC (dt d)) in let off := mul (add f f) paid in
  let claimed := mul (po d) (mul (mul (dL d) (dL d)) (dt d)) in
  [&& [&& positive (dL d), positive (dC d), positive (dt d), positive (gd d), positive (qo d), positive billion & le zero (gn d)],
      [&& size (C d) <= n, size (M d) <= n, short n (M d), short n (L d), short p (B d), size (Z d) == m, short p (Z d),
          all (fun a => a < k) (on d) & nonneg n w],
      every n (fun i => size (nth [::] (C d) i) <= i.+1),
      positive left,
      every k (fun a => le (mul (used n Ct (nth [::] (steps d) a)) (dt d)) (mul (at_ (tau d) a) CC)),
      (if cap d is Some c then every n (fun i => let m := nth [::] Mt i in
         le (mul (dot m m) (mul CC (dt d))) (mul left (at_ c i))) else true),
      every n (fun i => all (fun x => kept (steps d) i x.1 x.2) (zip (nth [::] (B d) i) (on d))),
      dominantT n E, positive S, positive P,
      let x := mul claimed left in le (mul (mul (add objective off) (qo d)) billion) (add (mul x billion) x),
      let x := mul claimed (add (K d) f) in le (sub (mul x billion) x) (mul (mul (sub objective off) (qo d)) billion) &
      le (mul (mul (add objective off) P) (gd d))
         (mul (gn d) (mul left (sub (mul (mul alpha alpha) (mul (dt d) (dt d))) (mul P paid))))].
End Compute.

Local Open Scope ring_scope.
Section Certificate.
Variable F : realFieldType.

Definition feasible n k (pat : 'I_k -> pred 'I_n) (tau : 'I_k -> F) (cap : option 'rV[F]_n) (X : 'M[F]_n) :=
  [/\ posdef X, forall a, sensitive X (pat a) (tau a) & forall c, cap = Some c -> forall i, invmx X i i <= c 0 i].

(* H with diag(w) alone is known to be semidefinite; M X M^T tells the two apart but for f, which costs what w is paid. *)
Lemma near_traces n (H X M : 'M[F]_n) (w : 'rV_n) (K f paid : F) : H^T = H -> X^T = X -> f < K -> 0 <= f ->
  rows_le (K%:M - M *m X *m M^T) f -> psd (H + diag_mx w) -> (forall i, 0 <= w 0 i) -> \tr (diag_mx w *m invmx X) <= paid ->
  (K - f) * \tr (H *m invmx X) <= \tr (M *m H *m M^T) + (f + f) * paid /\
  \tr (M *m H *m M^T) - (f + f) * paid <= (K + f) * \tr (H *m invmx X).
Proof.
move=> sH sX fK f0 hM pH w0 le_paid; have sD : (diag_mx w)^T = diag_mx w by rewrite tr_diag_mx.
have pD : psd (diag_mx w).
  move=> x; rewrite quad_sum; apply: sumr_ge0 => i _; rewrite (bigD1 i) //= big1 ?addr0 => [|j ij].
    by rewrite mxE eqxx mulr1n -expr2; apply: mulr_ge0 (w0 i) (sqr_ge0 _).
  by rewrite mxE eq_sym (negPf ij) mulr0n mul0r.
have sHD : (H + diag_mx w)^T = H + diag_mx w by rewrite linearD /= sH sD.
have /andP [low high] := near_trace sX fK hM sHD pH; have /andP [low' high'] := near_trace sX fK hM sD pD.
have more := ler_wpmul2l (addr_ge0 f0 f0) le_paid.
have := ler_add (ler_add high low') more; have := ler_add (ler_add low high') more.
rewrite mulmxDr !mulmxDl !mxtraceD => h h'; rewrite -subr_ge0 in h; rewrite -subr_ge0 in h'.
split; rewrite -subr_ge0; [move: h | move: h']; congr (_ <= _); ring.
Qed.

Theorem certificate m n p k (H : 'M_n) (L : 'M_(m, n)) (B : 'M_(n, p)) (Z : 'M_(m, p)) (X M : 'M[F]_n)
    (pat : 'I_k -> pred 'I_n) (c : 'I_p -> 'I_k) (price tau : 'I_k -> F) (w : 'rV_n) cap (K f s e g : F)
    (P := \sum_a price a * tau a) (paid := \sum_i w 0 i * limit cap 0 i) :
  H^T = H -> X^T = X -> 0 <= f -> f < K -> rows_le (K%:M - M *m X *m M^T) f ->
  (forall a, \sum_(i | pat a i) \sum_(j | pat a j) `|X i j| <= tau a) ->
  (forall l, cap = Some l -> forall i, \sum_k M k i ^+ 2 <= (K - f) * l 0 i) ->
  (forall a, 0 <= price a) -> (forall i j, ~~ pat (c j) i -> B i j = 0) ->
  (forall a i, \sum_(j | c j == a) B i j ^+ 2 <= price a) ->
  (forall i, 0 <= w 0 i) -> (cap = None -> w = 0) ->
  dominant (H + diag_mx w - L^T *m L) -> rows_le (s%:M - Z *m Z^T) e -> 0 < s + e -> 0 < P -> 0 <= g ->
  (\tr (M *m H *m M^T) + (f + f) * paid) * ((s + e) * P) <= g * ((K - f) * (inner (L *m B) Z ^+ 2 - (s + e) * P * paid)) ->
  [/\ feasible pat tau cap X,
      (K - f) * \tr (H *m invmx X) <= \tr (M *m H *m M^T) + (f + f) * paid,
      \tr (M *m H *m M^T) - (f + f) * paid <= (K + f) * \tr (H *m invmx X) &
      forall X', feasible pat tau cap X' -> \tr (H *m invmx X) <= g * \tr (H *m invmx X')].
Proof.
move=> sH sX f0 fK hM used hcap p0 off le_price w0 wN dom hZ s0 P0 g0 hg; have d : 0 < K - f by rewrite subr_gt0.
have t0 a : 0 <= tau a by apply: le_trans (used a); apply: sumr_ge0 => i _; apply: sumr_ge0.
have pE : psd (H + diag_mx w - L^T *m L).
  by apply: dominant_psd dom; rewrite linearB linearD /= trmx_mul trmxK sH tr_diag_mx.
have pH : psd (H + diag_mx w).
  move=> x; rewrite -[H + _](subrK (L^T *m L)) quadD; apply: addr_ge0 => //.
  by rewrite -[L^T]mulmx1 quad_congr; apply: psd1.
have costs Y : feasible pat tau cap Y -> forall i, w 0 i * invmx Y i i <= w 0 i * limit cap 0 i.
  move=> [_ _ hY] i; case e1: cap => [l|] /=; last by rewrite wN // !mxE !mul0r.
  by apply: ler_wpmul2l; [apply: w0 | apply: hY e1 _].
have feas : feasible pat tau cap X.
  split; [exact: near_posdef sX fK hM | by move=> a; apply: entries_sensitive |].
  by move=> l el i; rewrite -(ler_pmul2l d); apply: le_trans (near_inverse sX fK hM i) (hcap l el i).
have [|nt1 nt2] := @near_traces n H X M w K f paid sH sX fK f0 hM pH w0.
  by apply: ler_sum => i _; rewrite mul_diag_mx mxE; apply: costs.
split=> // X' feas'; have [pX' sens _] := feas'; have k0 : 0 < (s + e) * P by apply: mulr_gt0.
have nZ : norm_le (s + e) Z by apply: norm_le_tr (ltW s0) _; apply: near_norm; rewrite trmxK.
have := pattern_bound pX' nZ (ltW s0) sens p0 t0 off le_price pE (costs X' feas').
rewrite -/P -/paid mulrDr -ler_subl_addr => bound.
rewrite -(ler_pmul2l (mulr_gt0 d k0)) -mulrA [_ * P * _]mulrC mulrA.
apply: le_trans (ler_wpmul2r (ltW k0) nt1) _; apply: le_trans hg _.
apply: le_trans (ler_wpmul2l g0 (ler_wpmul2l (ltW d) bound)) _; rewrite le_eqVlt; apply/orP; left; apply/eqP.
ring.
Qed.
End Certificate.

Section Sound.
Variables (F : realFieldType) (T : numbers) (billion : T) (n : nat).
Notation value := (@value F T).

Definition pattern (steps : seq (seq nat)) (a : nat) : pred 'I_n := fun i => (i : nat) \in nth [::] steps a.

(* What is proved of a design, of the numbers as they stand in its file. *)
Definition proved_time (d : strategy T) :=
  let H := over F (mul (dL d) (dL d)) n n (full n (H d)) in let C := over F (dC d) n n (C d) in
  let feasible := @feasible F n (size (steps d)) (pattern (steps d)) (fun a => value (at_ (tau d) a) / value (dt d))
    (omap (vector F n (dt d)) (cap d)) in
  let objective := value (po d) / value (qo d) in let error X := \tr (H *m invmx X) in let X := C^T *m C in
  [/\ forall i j : 'I_n, (i < j)%N -> C i j = 0, feasible X, `|error X - objective| * value billion <= objective &
      forall X', feasible X' -> error X <= value (gn d) / value (gd d) * error X'].

Lemma value_on (P : pred nat) (f : nat -> T) :
  value (total [seq f i | i <- [seq i <- iota 0 n | P i]]) = \sum_(i < n | P i) value (f i).
Proof.
rewrite -(big_mkord P (fun i => value (f i))) /index_iota subn0 -big_filter /total.
by elim: (filter P _) => [|i l IH]; [rewrite big_nil value0 | rewrite big_cons -IH -valueD].
Qed.

Lemma value_squares a row (col : seq nat) : (size row <= size col)%N ->
  value (total [seq square_on a x | x <- zip row col]) =
  \sum_(j < size col | nth 0%N col j == a) value (at_ row j) ^+ 2.
Proof.
elim: col row => [|c col IH] [|x row] //= h; first by rewrite value0 big_ord0.
  by rewrite value0 big1 // => j _; rewrite /at_ nth_nil value0 expr0n.
rewrite valueD big_mkcond big_ord_recl -big_mkcond (IH row) //=; congr (_ + _); rewrite /square_on /=.
by case: ifP; rewrite ?valueM ?value0.
Qed.

Lemma all_zip (f : T -> nat -> bool) row (col : seq nat) j : all (fun x => f x.1 x.2) (zip row col) ->
  (j < size row)%N -> (j < size col)%N -> f (at_ row j) (nth 0%N col j).
Proof. by elim: col row j => [|c col IH] [|x row] [|j] //= /andP [h l] //; apply: IH. Qed.

Theorem check_time_sound d : check_time billion n d -> proved_time d.
Proof.
case/and5P => A1 A2 /everyP lower /(value_pos F) left0 /and5P [/everyP hused hcap /everyP hkept dom].
case/and5P => /(value_pos F) S0 /(value_pos F) P0 up low fin.
case/and5P: A1 => /(value_pos F) dL0 /(value_pos F) dC0 /(value_pos F) dt0 /(value_pos F) gd0.
case/and3P => /(value_pos F) qo0 /(value_pos F) bn0 /(value_le F); rewrite value0 => gn0.
case/and5P: A2 => sC sM hM hL /and5P [hB sZ hZ hon /(nonnegP F) w0].
set p := size (on d) in dom S0 P0 fin hB hkept.
set Hl := full n (H d) in dom up low fin; set wl := given (cap d) (w d) in w0 dom up low fin.
have hC : short n (C d).
  apply/(all_nthP [::]) => i iC; have i_n := leq_trans iC sC.
  by apply: leq_trans (lower (Ordinal i_n)) _.
have hon' (j : 'I_p) : (nth 0%N (on d) j < size (steps d))%N by apply: (all_nthP 0%N hon).
pose c j : 'I_(size (steps d)) := Ordinal (hon' j).
pose H0 := over F (mul (dL d) (dL d)) n n Hl; pose C0 := over F (dC d) n n (C d); pose X0 := C0^T *m C0.
pose iL := (value (dL d))^-1; pose iC := (value (dC d))^-1; pose it := (value (dt d))^-1.
pose Ci := mx F n n (C d); pose Mi := mx F n n (M d).
have shorter q m (A : seq (seq T)) : (size A <= m)%N -> short m (tr q A) by move=> h; apply: sub_all (short_tr q A) => a /leq_trans; apply.
have eC0 : C0^T = iC *: Ci^T by rewrite /C0 /over linearZ.
have eX0 : X0 = iC ^+ 2 *: (Ci^T *m Ci) by rewrite /X0 eC0 -scalemxAl -scalemxAr scalerA expr2.
have sX0 : X0^T = X0 by rewrite /X0 trmx_mul trmxK.
have sH0 : H0^T = H0 by rewrite /H0 /over linearZ /= full_sym.
set Pt := tr n (mulT _ _) in left0 up low fin hcap.
have hPt : short n Pt by apply: shorter; rewrite size_map.
have size_Pt : size Pt = n by rewrite size_map size_iota.
have tG : mx F n n Pt *m (mx F n n Pt)^T = Mi *m (Ci^T *m Ci) *m Mi^T.
  by rewrite /Pt mx_tr (mx_mulT F n n _ hC) trmxK trmx_mul trmxK !mulmxA.
have wM := worst_gramP F (K d) size_Pt hPt; rewrite tG in wM.
set f := worst_gram (K d) _ in wM left0 up low fin hcap.
have f0 : 0 <= value f := foldr_max_ge0 F _.
have {}wM : rows_le ((iC ^+ 2 * value (K d))%:M - Mi *m X0 *m Mi^T) (iC ^+ 2 * value f).
  have := rows_scale (sqr_ge0 iC) wM; congr (rows_le _ _).
  by rewrite scalerBr scale_scalar_mx eX0 -scalemxAr -scalemxAl.
have kC : 0 < iC ^+ 2 by rewrite exprn_gt0 ?invr_gt0.
have pats a : \sum_(i | pattern (steps d) a i) \sum_(j | pattern (steps d) a j) `|X0 i j| =
    iC ^+ 2 * value (used n (tr n (C d)) (nth [::] (steps d) a)).
  rewrite /used value_on mulr_sumr; apply: eq_bigr => i _; rewrite value_on mulr_sumr; apply: eq_bigr => j _.
  rewrite value_abs (dotE F _ i j (shorter n _ _ sC)) eX0 !mxE normrM ger0_norm ?ltW //; congr (_ * `|_|).
  by apply: eq_bigr => k _; rewrite !mxE !at_tr.
pose m := size (L d); pose Li := mx F m n (L d); pose Zi := mx F m p (Z d); pose Bi := mx F n p (B d).
have wZ := worst_gramP F (s d) (eqP sZ) hZ.
set e := worst_gram (s d) _ in wZ S0 P0 fin.
have tE : mx F n n (tab n (fun i j => let h := sub (at2 Hl i j) (at2 (mulT (tr n (L d)) (tr n (L d))) i j) in
      if i == j then add h (at_ wl i) else h)) = mx F n n Hl + diag_mx (row F n wl) - Li^T *m Li.
  have <- : mx F n n (mulT (tr n (L d)) (tr n (L d))) = Li^T *m Li.
    by rewrite (mx_mulT F n n _ (short_tr n (L d))) mx_tr trmxK.
  apply/matrixP => i j; rewrite mxE at_tab !mxE; have [->|ij] := eqVneq i j.
    by rewrite eqxx mulr1n valueD valueB; ring.
  have ne : (i == j :> nat) = false by move: ij; rewrite -val_eqE => /negPf.
  by rewrite ne mulr0n addr0 valueB.
pose prices (a : 'I_(size (steps d))) := value (price n d a).
have le_price a (i : 'I_n) : \sum_(j | c j == a) Bi i j ^+ 2 <= prices a.
  apply: le_trans (largestP F _ i); rewrite value_squares ?(short_nth i hB) //.
  by rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => j _; rewrite !mxE.
have off (i : 'I_n) j : ~~ pattern (steps d) (c j) i -> Bi i j = 0.
  move=> noti; rewrite mxE; have [jB|jB] := ltnP j (size (nth [::] (B d) i)); last first.
    by rewrite /at2 /at_ nth_default // value0.
  have := all_zip (hkept i) jB (ltn_ord j); rewrite /kept => /orP [/andP [l0 l1]|]; last by move=> h; case/negP: noti.
  by apply/eqP; rewrite eq_le; apply/andP; split; rewrite -(@value0 F T); apply: value_le.
pose taus (a : 'I_(size (steps d))) := value (at_ (tau d) a) / value (dt d).
have price_sum : \sum_a prices a * taus a = it * value (sum (size (steps d)) (fun a => mul (price n d a) (at_ (tau d) a))).
  by rewrite value_sum mulr_sumr; apply: eq_bigr => a _; rewrite valueM /prices /taus /it; ring.
have paid_sum : \sum_i (iL ^+ 2 *: row F n wl) 0 i * limit (omap (vector F n (dt d)) (cap d)) 0 i =
    iL ^+ 2 * it * value (sum n (fun i => mul (at_ wl i) (at_ (list_of (cap d)) i))).
  rewrite value_sum mulr_sumr; apply: eq_bigr => i _; rewrite valueM.
  by case: (cap d) => [a|] /=; rewrite !mxE /at_ ?nth_nil ?value0 /it; ring.
have hO : \tr (Mi *m H0 *m Mi^T) = iL ^+ 2 * value (inner_of (mulT (M d) Hl) (M d)).
  have sMH : short n (mulT (M d) Hl) by apply: short_mulT; rewrite size_tab.
  have sz : (size (mulT (M d) Hl) <= n)%N by rewrite size_map.
  rewrite (value_inner F (M d) sz sMH) (mx_mulT F _ n _ hM) full_sym /H0 /over -scalemxAr -scalemxAl mxtraceZ valueM.
  by rewrite /iL invrM ?unitfE ?gt_eqF // expr2.
have hA : inner (iL *: Li *m Bi) Zi = iL * value (inner_of (mulT (L d) (tr p (B d))) (Z d)).
  have sLB : short p (mulT (L d) (tr p (B d))) by apply: short_mulT; rewrite size_map size_iota.
  have sz : (size (mulT (L d) (tr p (B d))) <= m)%N by rewrite size_map.
  rewrite (value_inner F (Z d) sz sLB) (mx_mulT F _ p _ hL) mx_tr trmxK -scalemxAl /inner linearZ /= -scalemxAl mxtraceZ.
  by congr (_ * _); rewrite -mxtrace_tr trmx_mul trmxK mxtrace_mulC.
have [] := @certificate F m n p (size (steps d)) H0 (iL *: Li) Bi Zi X0 Mi (pattern (steps d)) c prices taus
  (iL ^+ 2 *: row F n wl) (omap (vector F n (dt d)) (cap d)) (iC ^+ 2 * value (K d)) (iC ^+ 2 * value f) (value (s d)) (value e)
  (value (gn d) / value (gd d)) sH0 sX0.
- by apply: mulr_ge0; [apply: sqr_ge0 | apply: f0].
- by rewrite ltr_pmul2l // -subr_gt0 -valueB.
- exact: wM.
- move=> a; rewrite pats /taus ler_pdivl_mulr //.
  have := value_le F (hused a); rewrite !valueM => h.
  rewrite -(ler_pmul2r (mulr_gt0 dC0 dC0)); move: h; congr (_ <= _).
  by rewrite /iC; field; rewrite gt_eqF.
- move=> a; case: (cap d) hcap => // a' /everyP h [<-] i.
  have := value_le F (h i); rewrite !valueM valueB (dotE F _ i i (shorter n _ _ sM)) => {}h.
  rewrite -(ler_pmul2r (mulr_gt0 (mulr_gt0 dC0 dC0) dt0)); move: h; congr (_ <= _).
    by congr (_ * _); apply: eq_bigr => k _; rewrite !mxE at_tr expr2.
  by rewrite !mxE /iC; field; rewrite !gt_eqF.
- by move=> a; apply: largest_ge0.
- exact: off.
- exact: le_price.
- by move=> i; have := w0 i; rewrite !mxE => h; apply: mulr_ge0 => //; apply: sqr_ge0.
- by rewrite /wl; case: (cap d) => // _; apply/rowP => i; rewrite !mxE /at_ nth_nil value0 mulr0.
- have := dominant_scale (sqr_ge0 iL) (dominantP F (short_tab _ _) dom); congr (dominant _).
  rewrite tE scalerBr scalerDr /H0 /over valueM invrM ?unitfE ?gt_eqF // -expr2 -linearZ /=; congr (_ - _).
  have -> : (iL *: Li)^T = iL *: Li^T by rewrite linearZ.
  by rewrite -scalemxAl -scalemxAr scalerA expr2.
- exact: wZ.
- by rewrite -valueD.
- by move: P0; rewrite valueM pmulr_rgt0 // price_sum => P1; apply: mulr_gt0 => //; rewrite invr_gt0.
- by rewrite divr_ge0 // ltW.
- rewrite hO hA price_sum paid_sum; have := value_le F fin.
  rewrite !(valueM, valueB, valueD) -[value (s d) + value e]valueD.
  set O := value (inner_of (mulT (M d) _) _); set S := value (add _ _); set P := value (sum (size _) _).
  set N := value (inner_of (mulT (L d) _) _); set Q := value (sum n _) => h.
  rewrite -(ler_pmul2r (mulr_gt0 (mulr_gt0 (mulr_gt0 (mulr_gt0 dL0 dL0) (mulr_gt0 dC0 dC0)) (mulr_gt0 dt0 dt0)) gd0)).
  move: h; congr (_ <= _); rewrite /iL /iC /it; field; by rewrite !gt_eqF.
move=> feas lo hi best; split=> //.
  move=> i j ij; rewrite /over !mxE /at2 /at_ nth_default ?value0 ?mulr0 //.
  by apply: leq_trans (lower i) ij.
set o := \tr (H0 *m invmx X0) in lo hi *; set q := value (po d) / value (qo d).
rewrite hO paid_sum in lo hi; set O := value (inner_of (mulT (M d) Hl) (M d)) in lo hi.
set U := value (sum n _) in lo hi.
have d0 : 0 < value (K d) - value f by rewrite -valueB.
have u0 : 0 < value (K d) + value f by apply: ltr_paddr => //; apply: le_lt_trans f0 _; rewrite -subr_gt0.
have l0 : 0 < value (dL d) * value (dL d) * value (dt d) by rewrite !mulr_gt0.
have s0 : 0 < value (dL d) * value (dL d) * value (dt d) * (value (dC d) * value (dC d)) by rewrite !mulr_gt0.
pose spare := (value f + value f) * U; pose found := O * (value (dC d) * value (dC d) * value (dt d)).
have {}lo : (value (K d) - value f) * o * (value (dL d) * value (dL d) * value (dt d)) <= found + spare.
  have := ler_wpmul2r (ltW s0) lo; rewrite /found /spare /iC /iL /it; congr (_ <= _); field; by rewrite !gt_eqF.
have {}hi : found - spare <= (value (K d) + value f) * o * (value (dL d) * value (dL d) * value (dt d)).
  have := ler_wpmul2r (ltW s0) hi; rewrite /found /spare /iC /iL /it; congr (_ <= _); field; by rewrite !gt_eqF.
have := value_le F up; have := value_le F low; rewrite !(valueD, valueB, valueM) -/O -/U -/found -/spare => lo' hi'.
rewrite -[value billion](gtr0_norm bn0) -normrM ler_norml; apply/andP; split.
  have k0 := mulr_gt0 (mulr_gt0 qo0 l0) u0.
  rewrite -subr_ge0 -(pmulr_rge0 _ k0); have h := le_trans lo' (ler_wpmul2r (ltW bn0) (ler_wpmul2r (ltW qo0) hi)).
  by rewrite -subr_ge0 in h; move: h; congr (_ <= _); rewrite /q; field; rewrite gt_eqF.
have k0 := mulr_gt0 (mulr_gt0 qo0 l0) d0.
rewrite -subr_ge0 -(pmulr_rge0 _ k0); have h := le_trans (ler_wpmul2r (ltW bn0) (ler_wpmul2r (ltW qo0) lo)) hi'.
by rewrite -subr_ge0 in h; move: h; congr (_ <= _); rewrite /q; field; rewrite gt_eqF.
Qed.
End Sound.
Print Assumptions check_time_sound.
