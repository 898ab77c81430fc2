(* Reads the numbers of a design as `noisedesign prove` writes them, and says whether `accepted` of Checker.v holds: exit
   code 0 if so, 1 if not, 2 if this is no such file. A field is a line of its name and of how many lines follow; numbers
   stand between blanks, rows of a matrix that is one line between semicolons. The second line is the kind, and how many nodes or steps. *)
let wrong what = prerr_endline ("noisedesign-check: " ^ what); exit 2
let line () = try input_line stdin with End_of_file -> wrong "the numbers end too early"
let words text = if text = "" then [] else String.split_on_char ' ' text
let whole word = try Whole.of_string word with Invalid_argument _ -> wrong ("not a whole number: " ^ word)
let index word = match int_of_string_opt word with
  | Some i when i >= 0 -> i
  | _ -> wrong ("not a number of a row: " ^ word)
let lines read name = match words (line ()) with
  | [found; count] when found = name -> List.init (index count) (fun _ -> read (line ()))
  | _ -> wrong ("expected the field " ^ name)
let numbers read text = List.map read (words text)
let rows read = lines (numbers read)
let matrices = lines (fun text -> List.map (numbers whole) (String.split_on_char ';' text))
let single name = function [x] -> x | _ -> wrong ("expected one of " ^ name)
let matrix = rows whole
let maybe name = match matrix name with [] -> None | rows -> Some (single name rows)
let row name = single name (matrix name)
let one name = single name (row name)

let space n =
  let w = matrix "W" in let r = matrix "R" in let tau = row "tau" in let cap = maybe "cap" in let floor = maybe "floor" in
  let dw = one "dW" in let dr = one "dR" in let dt = one "dt" in let po = one "po" in let qo = one "qo" in
  let gn = one "gn" in let gd = one "gd" in let m = matrix "M" in let l = matrix "L" in let z = matrix "Z" in
  let b = row "b" in let above = row "w" in let below = row "u" in let k = one "K" in let s = one "s" in
  accepted n w r tau cap floor dw dr dt po qo gn gd m l z b above below k s

let time n =
  let h = matrix "H" in let c = matrix "C" in let steps = rows index "steps" in let tau = row "tau" in
  let cap = maybe "cap" in let dl = one "dL" in let dc = one "dC" in let dt = one "dt" in let po = one "po" in let qo = one "qo" in
  let gn = one "gn" in let gd = one "gd" in let m = matrix "M" in let l = matrix "L" in let z = matrix "Z" in
  let b = matrix "B" in let on = single "on" (rows index "on") in let above = row "w" in let k = one "K" in let s = one "s" in
  accepted_time n h c steps tau cap dl dc dt po qo gn gd m l z b on above k s

let seeds n =
  let w = matrix "W" in let sets = rows index "sets" in let p = matrices "P" in let tau = row "tau" in
  let cap = maybe "cap" in let dw = one "dW" in let dr = one "dR" in let dt = one "dt" in let po = one "po" in
  let qo = one "qo" in let gn = one "gn" in let gd = one "gd" in let m = matrix "M" in let l = matrix "L" in
  let z = matrix "Z" in let b = row "b" in let above = row "w" in let q = matrices "Q" in let d = matrices "D" in
  let k = one "K" in let s = one "s" in
  accepted_seeds n w sets p tau cap dw dr dt po qo gn gd m l z b above q d k s

let () =
  if line () <> "Written by noisedesign prove, the numbers of a design" then wrong "expected numbers of noisedesign prove";
  let holds = match words (line ()) with
    | ["space"; n] -> space (index n)
    | ["time"; n] -> time (index n)
    | ["seeds"; n] -> seeds (index n)
    | _ -> wrong "expected the numbers of a design over space or time, or of shared seeds" in
  (match input_line stdin with _ -> wrong "more follows the numbers" | exception End_of_file -> ());
  print_endline (if holds then "accepted" else "refused");
  exit (if holds then 0 else 1)
