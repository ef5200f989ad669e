#!/bin/sh
# A client of the fsrun protocol in POSIX shell (Linux: /proc). Numbers such as "4.4" are sections of protocol.md.
#
#     fsrun.sh read RUN      print what the run folder RUN says, as one JSON object
#     fsrun.sh drive RUN     obey the commands of docs/clients.md from standard input
#
# Parts: JSON and reading (awk), the clock and files, sessions, the trainer, the evaluator, the commands.
# After a crash: whatever was done stands, and the next session or any evaluator goes on from there (9).
set -u
export LC_ALL=C # bytes, in every tool
unset CDPATH
nl='
' tab=$(printf '\t')
job='' n='' T='' cT=0 token='' helper='' fenced='' continues='' wrote_finished='' ce='' u=. seq=0
control=$(printf '\001-\037\177') # for patterns: control characters

# ---- JSON and reading ------------------------------------------------------------------------------------------------

# A tokenizer without recursion. parse(S) fills K (kinds: s n b z { [) and V (texts; numbers stay as they stand) by path,
# and TOP with the keys of the top object. A path is the keys from the top, each after SUBSEP, and is kept to depth 5.
JSON='
function begin(  i) {
  for (i = 1; i < 256; i++) CHR[i] = sprintf("%c", i)
  for (i = 1; i < 32; i++) CODE[CHR[i]] = sprintf("\\u%04x", i)
  ESC["\""] = "\""; ESC["\\"] = "\\"; ESC["/"] = "/"; ESC["b"] = "\b"; ESC["f"] = "\f"; ESC["n"] = "\n"; ESC["r"] = "\r"; ESC["t"] = "\t"
  WORD = "^(NaN|-?Infinity)$"; NUMBER = "^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$"
}
function is_utf8(s) { # what is left without the sequences that are allowed must be ASCII
  if (s !~ /[\200-\377]/) return 1
  gsub(/[\302-\337][\200-\277]|\340[\240-\277][\200-\277]|[\341-\354\356\357][\200-\277][\200-\277]|\355[\200-\237][\200-\277]|\360[\220-\277][\200-\277][\200-\277]|[\361-\363][\200-\277][\200-\277][\200-\277]|\364[\200-\217][\200-\277][\200-\277]/, "", s)
  return s !~ /[\200-\377]/
}
function utf8(u) { # NUL, which awk cannot hold, and SUBSEP are written overlong, as no valid text has them
  if (u > 0 && u < 128 && u != 28) return CHR[u]
  if (u < 2048) return CHR[192 + int(u / 64)] CHR[128 + u % 64]
  if (u < 65536) return CHR[224 + int(u / 4096)] CHR[128 + int(u / 64) % 64] CHR[128 + u % 64]
  return CHR[240 + int(u / 262144)] CHR[128 + int(u / 4096) % 64] CHR[128 + int(u / 64) % 64] CHR[128 + u % 64]
}
function hex(s,  i, u) {
  if (s !~ /^[0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f]/) return -1
  for (i = 1; i <= 4; i++) u = u * 16 + index("0123456789abcdef", tolower(substr(s, i, 1))) - 1
  return u
}
function text(s,  out, i, c, u, low) { # the text between two quotes
  if (s ~ /[\001-\037]/) BAD = 1
  while ((i = index(s, "\\")) > 0 && !BAD) {
    out = out substr(s, 1, i - 1); c = substr(s, i + 1, 1); s = substr(s, i + 2)
    if (c == "u") {
      u = hex(s); s = substr(s, 5)
      if (u >= 55296 && u < 56320 && substr(s, 1, 2) == "\\u") {
        low = hex(substr(s, 3)); s = substr(s, 7)
        u = low >= 56320 && low < 57344 ? 65536 + (u - 55296) * 1024 + low - 56320 : -1
      }
      if (u < 0 || u >= 55296 && u < 57344) BAD = 1 # half of a pair is no text
      else out = out utf8(u)
    } else if (c in ESC) out = out ESC[c]
    else BAD = 1
  }
  return out s
}
function quoted(s,  out, i, c) {
  gsub(/["\\]/, "\\\\&", s)
  gsub(/\300\200/, "\\u0000", s); gsub(/\300\234/, "\\u001c", s)
  if (s !~ /[\001-\037]/) return "\"" s "\""
  for (i = 1; i <= length(s); i++) { c = substr(s, i, 1); out = out (c in CODE ? CODE[c] : c) }
  return "\"" out "\""
}
function token(kind, t,  p, k) {
  if (kind == ":") { if (WANT != ":") BAD = 1; WANT = "v" }
  else if (kind == ",") { if (WANT != "," || !DEPTH) BAD = 1; else WANT = IN[DEPTH] == "{" ? "k" : "v" }
  else if (kind == "}" || kind == "]") {
    if (!DEPTH || IN[DEPTH] != (kind == "}" ? "{" : "[") || WANT != "," && WANT != (kind == "}" ? "K" : "V")) BAD = 1
    WANT = --DEPTH > 0 ? "," : "end"
  } else if (WANT == "k" || WANT == "K") {
    if (kind != "s") BAD = 1
    KEY[DEPTH] = t; WANT = ":"
  } else if (WANT != "v" && WANT != "V") BAD = 1
  else {
    if (DEPTH <= 5) {
      p = !DEPTH ? "" : AT[DEPTH] SUBSEP (IN[DEPTH] == "{" ? KEY[DEPTH] : ++COUNT[DEPTH])
      # 8.2: of duplicate keys the last counts, with nothing of the one before
      if (p in K && (K[p] == "{" || K[p] == "[")) for (k in K) if (index(k, p SUBSEP) == 1) delete K[k]
      if (DEPTH == 1 && !(p in K)) TOP[++TOPS] = KEY[1]
      K[p] = kind; V[p] = t
    }
    if (kind == "{" || kind == "[") { if (DEPTH == 100) BAD = 1; IN[++DEPTH] = kind; AT[DEPTH] = p; COUNT[DEPTH] = 0; WANT = kind == "{" ? "K" : "V" }
    else WANT = DEPTH ? "," : "end"
  }
}
function between(s,  i, c, w) { # what stands between two texts
  gsub(/[ \t\r\n]+/, " ", s)
  for (i = 1; i <= length(s) && !BAD; i++) {
    c = substr(s, i, 1)
    if (c == " ") continue
    if (index("{}[]:,", c)) { token(c); continue }
    for (w = ""; c ~ /[-+.0-9A-Za-z]/; c = substr(s, ++i, 1)) w = w c
    i--
    if (w ~ NUMBER) token("n", w)
    else if (w == "null") token("z")
    else if (w == "true" || w == "false") token("b", w)
    else if (BARE && w ~ WORD) token("w", w)
    else BAD = 1
  }
}
function parse(s,  n, i, part, t) {
  split("", K); split("", V); TOPS = DEPTH = BAD = 0; WANT = "v"
  if (!is_utf8(s)) return 0
  n = split(s, part, "\"")
  for (i = 1; i <= n && !BAD; i++) {
    between(part[i])
    if (i == n) break
    for (t = part[++i]; match(t, /\\+$/) && RLENGTH % 2 && i < n; ) t = t "\"" part[++i]
    if (i == n) BAD = 1
    else token("s", text(t))
  }
  return !BAD && WANT == "end"
}
function whole(p,  v) { # a whole number of 64 bits as digits, or ""
  v = V[p]
  if (!(p in K) || K[p] != "n") return ""
  if (v ~ /[.eE]/) { v = v + 0; v = v == int(v) && v > -9223372036854775808 && v < 9223372036854775808 ? sprintf("%.0f", v) : "" }
  if (v == "-0") v = "0"
  return v != "" && !less("9223372036854775807", v) && !less(v, "-9223372036854775808") ? v : ""
}
function less(a, b,  m, n) { # two whole numbers, digit by digit: a double is exact to 2^53 only
  m = a ~ /^-/; n = b ~ /^-/
  if (m != n) return m
  if (m) { m = substr(a, 2); a = substr(b, 2); b = m }
  return length(a) != length(b) ? length(a) < length(b) : ("x" a) < ("x" b)
}'

# stream KIND NAME [FILE]: a file for awk. NUL (8.2: reading stops there) becomes \003; \001 begins a file and \002 ends
# one, so the text before \002 is what has no newline yet.
stream() {
  case $1$2 in *[$control]*) return ;; esac # no name of the protocol
  printf '\001%s\t%s\n' "$1" "$2"
  [ ! -f "${3-$2}" ] || tr '\000\001\002\003' '\003\004\004\004' <"${3-$2}" 2>/dev/null
  printf '\002\n'
}
FILES='
BEGIN { begin() }
/^\001/ { split(substr($0, 2), HEAD, "\t"); KIND = HEAD[1]; NAME = HEAD[2]; RECORD = ""; SIZE = LINES = CUT = BARE = 0; opened(); next }
/\002$/ { TAIL = substr($0, 1, length($0) - 1); sub(/^\357\273\277/, "", RECORD); closed(TAIL == "" && SIZE <= 67108864 && parse(RECORD) && K[""] == "{"); next }
{ LINES++; SIZE += length($0) + 1 }
KIND != "log" { if (SIZE <= 67108864) RECORD = RECORD $0 "\n"; next } # 6: a record has at most 64 MiB
{
  if (/\003/) CUT = 1
  if (!CUT) line($0)
}'

# get FILE KEY...: the values in a record, a line each; "-" for what is not there, null or no record (6). "a|b": b in a.
get() {
  get_file=$1
  shift
  stream record - "$get_file" | KEYS="$*" awk "$JSON$FILES"'
    function opened() {} function line(s) {}
    function closed(good,  n, i, key, v) {
      n = split(ENVIRON["KEYS"], key, " ")
      for (i = 1; i <= n; i++) {
        gsub(/[|]/, SUBSEP, key[i]); key[i] = SUBSEP key[i]
        v = good && key[i] in K && K[key[i]] != "z" ? V[key[i]] : "-"
        gsub(/[\001-\037]/, " ", v)
        print v == "" ? "-" : v
      }
    }'
}

# js TEXT: as JSON
js() {
  case $1 in
    *[!A-Za-z0-9._/:=+~-]*) TEXT=$1 awk "$JSON"' BEGIN { begin(); printf "%s", quoted(ENVIRON["TEXT"]) }' ;;
    *) printf '"%s"' "$1" ;;
  esac
}

# 8.3 and docs/clients.md: the run as one object. Kinds: lock end log outcome, and "place" with a place for a name.
READ='
function is_job(s) { return length(s) <= 48 && s ~ /^[a-z0-9][a-z0-9_-]*$/ }
function is_number(s) { return length(s) <= 18 && s ~ /^[1-9][0-9]*$/ }
function is_entry(s) { return s !~ /^[.]|[.]tmp$|[\001-\037\177]/ && s != "FINISHED" && s != "" && length(s) <= 200 && is_utf8(s) }
function group(n) { while (("main", n) in CONTINUES) n--; return n }
function opened(  f, n, base) {
  base = NAME; sub(/.*\//, "", base); n = split(base, f, "."); OWNER = ""
  if (KIND == "place") {
    if (NAME ~ /^(best|failed|queue|meta|retry\/[1-9][0-9]*|claimed\/[a-z0-9][a-z0-9_-]*[.][1-9][0-9]*\/[1-9][0-9]*)$/ && is_entry(HEAD[3]) && PLACE[HEAD[3]] == "") {
      sub(/\/.*/, "", NAME); PLACE[HEAD[3]] = NAME == "meta" ? "" : NAME
    }
  }
  else if (KIND == "outcome") { # names are read from the right (3)
    ATTEMPT = f[n - 1]; OWNER = substr(base, 1, length(base) - length(ATTEMPT) - 6)
    if (n < 3 || !is_number(ATTEMPT) || !is_entry(OWNER)) OWNER = ""
    else { STANDS[OWNER "." ATTEMPT] = 1; if (!(OWNER in PLACE)) PLACE[OWNER] = "" }
  } else if (is_job(f[1]) && is_number(f[2]) && (n == 3 || KIND == "log" && n == 4 && f[3] ~ /^s(0|[1-9][0-9]*)$/)) {
    OWNER = f[1]; SESSION = f[2] + 0; PIECE = n == 4 ? substr(f[3], 2) + 1 : 0
    if (KIND == "lock" && SESSION > HIGHEST[OWNER]) HIGHEST[OWNER] = SESSION
    if (KIND == "end") { STATUS[OWNER, SESSION] = "crashed"; REASON[OWNER, SESSION] = "null" }
    if (KIND == "log" && OWNER == "main") GROUPS[group(SESSION)] = 1
  }
  if (OWNER == "") KIND = "unknown"
}
function closed(good,  p, v, i) {
  if (KIND == "lock" && good) {
    p = SUBSEP "protocol"; v = SUBSEP "must_understand"
    if (K[p] != "s" || V[p] !~ /^0*1([.]|$)/ || v in K && (K[v] != "[" || (v SUBSEP 1) in K)) REFUSED = 1 # section 10
    if (V[SUBSEP "job"] != OWNER || whole(SUBSEP "session") != SESSION) return
    if (K[SUBSEP "continues"] == "b" && V[SUBSEP "continues"] == "true") CONTINUES[OWNER, SESSION] = 1
    if (OWNER == "main") LOCKED[SESSION] = 1
    if (K[SUBSEP "fence"] != "{") return
    FENCED[OWNER, SESSION - 1] = 1 # 4.7
    for (i in K) if (index(i, SUBSEP "fence" SUBSEP) == 1) FENCE[substr(i, 8)] = V[i] + 0
  } else if (KIND == "end" && good) {
    v = V[SUBSEP "status"]
    if (v == "finished" || v == "failed" || v == "crashed") STATUS[OWNER, SESSION] = v
    if (K[SUBSEP "reason"] == "s") REASON[OWNER, SESSION] = quoted(V[SUBSEP "reason"])
  } else if (KIND == "outcome" && good) {
    v = V[SUBSEP "state"]
    if (v !~ /^(done|failed|lost|skipped|returned)$/ || K[SUBSEP "entry"] != "s" || K[SUBSEP "job"] != "s" || whole(SUBSEP "session") == "") return
    OUTCOMES[OWNER] = OUTCOMES[OWNER] (OUTCOMES[OWNER] == "" ? "" : ", ") "\"" ATTEMPT "\": \"" v "\""
    p = OWNER "." ATTEMPT; ORDER[p] = whole(SUBSEP "order"); NUMBER_OF[p] = ATTEMPT + 0
    if ((v = whole(SUBSEP "main_session")) != "") BY[p] = group(v + 0)
    v = whole(SUBSEP "step")
    if (p in LINED || V[SUBSEP "state"] != "done" || v == "") return
    for (i in K) if (index(i, SUBSEP "scores" SUBSEP) == 1 && !index(substr(i, 9), SUBSEP) && value(i) != "") score(p, substr(i, 9), v, value(i), V[SUBSEP "time"])
  }
}
function value(p) { # 8.2: a number or a word, else ""
  if (K[p] == "s" || K[p] == "w") return V[p] ~ WORD ? "\"" V[p] "\"" : ""
  if (K[p] != "n") return ""
  if (V[p] + 0 > 1.797693134862315708e308) return "\"Infinity\""
  return V[p] + 0 < -1.797693134862315708e308 ? "\"-Infinity\"" : V[p]
}
function line(s,  step, key, named, time, i, p, bad) {
  if (((OWNER, SESSION) in FENCED) && !PIECE && SIZE > FENCE[NAME] + 0) { CUT = 1; return }
  BARE = 1 # 8.2: in lines the bare words are taken too
  if (LINES == 1) sub(/^\357\273\277/, "", s)
  if (s ~ /^[ \t\r]*$/) return
  key = SUBSEP "entry"
  if (!parse(s) || K[""] != "{" || (step = whole(SUBSEP "step")) == "" || key in K && K[key] != "s" && K[key] != "z") bad = 1
  else {
    if (named = K[key] == "s") LINED[key = V[key]] = 1
    time = K[SUBSEP "time"] == "n" ? V[SUBSEP "time"] : ""
    for (i = 1; i <= TOPS; i++) if (TOP[i] !~ /^(step|time|entry)$/ && K[p = SUBSEP TOP[i]] != "z") {
      if (value(p) == "") bad = 1
      else if (named) score(key, TOP[i], step, value(p), time)
      else point(TOP[i], OWNER == "main" ? "main " group(SESSION) : OWNER, step, value(p), time)
    }
  }
  if (bad) SKIPPED[NAME] = SKIPPED[NAME] (SKIPPED[NAME] == "" ? "" : ", ") LINES
}
function point(tag, who, step, v, time,  p) { # of equal steps the last: by session, log before pieces, line
  p = tag SUBSEP who; if (!(tag in WHOS)) TAGS[++TAG_COUNT] = tag
  if (!(p in STEPS)) WHO[tag, ++WHOS[tag]] = who
  if (!((p, step) in VALUE)) STEP[p, ++STEPS[p]] = step
  else if (AGE[p, step] > SESSION || AGE[p, step] == SESSION && PART[p, step] > PIECE) return
  VALUE[p, step] = v; AGE[p, step] = SESSION; PART[p, step] = PIECE; TIME[p, step] = time
}
function score(key, tag, step, v, time) { # 5.9: points of an outcome, each tag once
  if (!(tag in WHOS)) { TAGS[++TAG_COUNT] = tag; WHOS[tag] += 0 }
  if (!((tag, key) in S_VALUE)) S_KEY[tag, ++SCORES[tag]] = key
  S_VALUE[tag, key] = v; S_STEP[tag, key] = step; S_TIME[tag, key] = time
}
function cuts(tag,  i, j, a, b, n, low) { # CUT_AT[group]: from which step on later groups of main void it
  split("", CUT_AT)
  for (i = 1; i <= WHOS[tag]; i++) if ((a = WHO[tag, i]) ~ /^main /) {
    low = ""
    for (n = 1; n <= STEPS[tag, a]; n++) if (low == "" || less(STEP[tag, a, n], low)) low = STEP[tag, a, n]
    for (j = 1; j <= WHOS[tag]; j++) if ((b = WHO[tag, j]) ~ /^main / && substr(b, 6) + 0 < substr(a, 6) + 0)
      if (!(b in CUT_AT) || less(low, CUT_AT[b])) CUT_AT[b] = low
  }
}
function is_void(key, step,  g, i, at) { # the fate of what its main session had logged last by then
  if (!(key in BY) || !MANY) return 0
  g = "main " BY[key]
  for (i = 1; i <= H_STEPS[g]; i++) if (!less(step, H_STEP[g, i]) && (at == "" || less(at, H_STEP[g, i]))) at = H_STEP[g, i]
  return at != "" && H_VOID[g, at]
}
function outranks(a, b) { # of two outcomes at one step: main session, order, attempt
  if ((a in BY ? BY[a] : -1) != (b in BY ? BY[b] : -1)) return (a in BY ? BY[a] : -1) > (b in BY ? BY[b] : -1)
  if (ORDER[a] + 0 != ORDER[b] + 0 || ORDER[a] != ORDER[b]) return less(ORDER[b] == "" ? 0 : ORDER[b], ORDER[a] == "" ? 0 : ORDER[a])
  return NUMBER_OF[a] >= NUMBER_OF[b]
}
function beside(step, v, time, who) { # the later time wins; of equal ones the name, outcomes last
  if (!(step in B_VALUE)) B_STEP[++B_STEPS] = step
  else if (time == "" && B_TIME[step] != "" || time != "" && B_TIME[step] != "" && time + 0 < B_TIME[step] + 0) return
  else if ((time == "") == (B_TIME[step] == "") && time + 0 == B_TIME[step] + 0 && who < B_WHO[step]) return
  B_VALUE[step] = v; B_TIME[step] = time; B_WHO[step] = who
}
function sorted(n,  gap, i, j, t) { # R_STEP by Shell
  for (gap = int(n / 2); gap > 0; gap = int(gap / 2)) for (i = gap + 1; i <= n; i++) {
    t = R_STEP[i]
    for (j = i; j > gap && less(t, R_STEP[j - gap]); j -= gap) R_STEP[j] = R_STEP[j - gap]
    R_STEP[j] = t
  }
}
function counted(tag,  i, n, who, step, key, low, best, r, out) { # the points of one tag
  split("", B_VALUE); split("", B_TIME); B_STEPS = 0; cuts(tag)
  for (i = 1; i <= WHOS[tag]; i++) if ((who = WHO[tag, i]) !~ /^main /) for (n = 1; n <= STEPS[tag, who]; n++) {
    step = STEP[tag, who, n]; beside(step, VALUE[tag, who, step], TIME[tag, who, step], who)
  }
  for (i = 1; i <= SCORES[tag]; i++) {
    key = S_KEY[tag, i]; step = S_STEP[tag, key]
    if (key in STANDS && !is_void(key, step) && (!(step in best) || outranks(key, best[step]))) best[step] = key
  }
  for (step in best) beside(step, S_VALUE[tag, best[step]], S_TIME[tag, best[step]], "~")
  low = ""
  for (i = 1; i <= B_STEPS; i++) { R_STEP[++r] = step = B_STEP[i]; R_VALUE[step] = B_VALUE[step]; if (low == "" || less(step, low)) low = step }
  for (i = 1; i <= WHOS[tag]; i++) if ((who = WHO[tag, i]) ~ /^main /) for (n = 1; n <= STEPS[tag, who]; n++) {
    step = STEP[tag, who, n]
    if (who in CUT_AT && !less(step, CUT_AT[who]) || low != "" && !less(step, low)) continue
    R_STEP[++r] = step; R_VALUE[step] = VALUE[tag, who, step]
  }
  sorted(r)
  for (i = 1; i <= r; i++) out = out (i > 1 ? ", " : "") "[" R_STEP[i] ", " R_VALUE[R_STEP[i]] "]"
  return out
}
function history(tag,  i, n, who, step) { # H_VOID: whether a point that a group logged at a step was voided
  cuts(tag)
  for (i = 1; i <= WHOS[tag]; i++) if ((who = WHO[tag, i]) ~ /^main /) for (n = 1; n <= STEPS[tag, who]; n++) {
    step = STEP[tag, who, n]
    if (!((who, step) in H_VOID)) { H_STEP[who, ++H_STEPS[who]] = step; H_VOID[who, step] = 0 }
    if (who in CUT_AT && !less(step, CUT_AT[who])) H_VOID[who, step] = 1
  }
}
function object(name) { printf ",\n  \"%s\": {", name; COMMA = "" }
function member(name, v) { printf "%s\n    %s: %s", COMMA, quoted(name), v; COMMA = "," }
function obeyed(f,  n) { # 5.8: whether FINISHED is obeyed; f: the session it names, "-": none, "": it is not there
  n = HIGHEST["main"]
  return f != "" && (!n || f == n || f !~ /^[1-9][0-9]*$/ && STATUS["main", n] == "finished") ? "true" : "false"
}
END {
  printf "{\n  \"writable\": %s", REFUSED ? "false" : "true"
  object("jobs")
  for (k in HIGHEST) {
    n = HIGHEST[k]; s = (k, n) in STATUS ? STATUS[k, n] : "running"
    member(k, "{\"session\": " n ", \"status\": \"" s "\", \"reason\": " (s == "running" ? "null" : REASON[k, n]) "}")
  }
  for (i in LOCKED) GROUPS[group(i + 0)] = 1
  n = 0
  for (i in GROUPS) n++
  MANY = n > 1
  if (MANY) for (i = 1; i <= TAG_COUNT; i++) history(TAGS[i])
  printf "\n  }"; object("points")
  for (i = 1; i <= TAG_COUNT; i++) if ((s = counted(TAGS[i])) != "") member(TAGS[i], "[" s "]")
  printf "\n  }"; object("skipped")
  for (k in SKIPPED) member(k, "[" SKIPPED[k] "]")
  if (ENVIRON["UNIT"] == "") { print "\n  },\n  \"entries\": null,\n  \"finished\": null\n}"; exit }
  printf "\n  }"; object("entries")
  for (k in PLACE) member(k, "{\"place\": " (PLACE[k] == "" ? "null" : "\"" PLACE[k] "\"") ", \"outcomes\": {" OUTCOMES[k] "}}")
  printf "\n  },\n  \"finished\": %s\n}\n", obeyed(ENVIRON["FINISHED"])
}'

# places: what stands where, as input for READ. Of two places the first one counts; an entry may move between two
# listings, so this is run twice (9).
places() {
  for place_f in "$u"/claimed/*/*/* "$u"/retry/*/* "$u"/queue/* "$u"/failed/* best/* "$u"/meta/*.json; do
    case $place_f in
      *[$control]*) continue ;;
      *\**) [ -e "$place_f" ] || continue ;; # a pattern that nothing matched
    esac
    place=${place_f%/*} place=${place#"$u"/} name=${place_f##*/}
    [ "$place" != meta ] || name=${name%.json}
    printf '\001place\t%s\t%s\n' "$place" "$name"
  done
}

# find_unit: u is where the queue stands, or "" where it is unreachable (2)
find_unit() {
  look main
  u=. unit=null
  { read -r unit_path && read -r unit_host && read -r unit_id; } <<END
$(get "jobs/main.$top.lock" 'unit|path' 'unit|host' 'unit|id')
END
  [ "$unit_path" != - ] || return 0
  unit="{\"path\":$(js "$unit_path"),\"host\":$(js "$unit_host"),\"id\":$(js "$unit_id")}"
  u=$unit_path
  [ "$(get "$u/unit.json" id)" = "$unit_id" ] || u=
}

# locks and logs: as input for READ, in the order of 8.4
locks() { for lock_f in jobs/*.lock; do stream lock "$lock_f"; done; }
read_once() {
  locks
  for read_f in jobs/*.end; do stream end "$read_f"; done
  for read_f in scalars/*.jsonl; do stream log "$read_f"; done
  [ -z "$u" ] || places
  for read_f in evals/*.json; do stream outcome "$read_f"; done
  [ -z "$u" ] || places
}
read_run() {
  cd "$1" && find_unit || return 1
  for look_again in 1 2 3; do # a lock that is new may void what was read (8.4)
    read_locks=$(echo jobs/*.lock) finished=
    [ -z "$u" ] || for read_f in "$u"/queue/*; do [ "$read_f" != "$u/queue/FINISHED" ] || finished=$(get "$read_f" main_session); done
    reading=$(read_once | FINISHED=$finished UNIT=$u awk "$JSON$FILES$READ")
    [ "$read_locks" != "$(echo jobs/*.lock)" ] || break
  done
  printf '%s\n' "$reading"
}

# ---- the clock and files ---------------------------------------------------------------------------------------------

# now: up = hundredths of a second since boot, suspend counted (4.4, 4.5)
now() { read -r up_s up_rest </proc/uptime && up=$((${up_s%.*} * 100 + 1${up_s#*.} - 100)); }
seconds() { printf '%d.%02d' $(($1 / 100)) $(($1 % 100)); }
nap() { sleep "$(seconds "$1")"; }
utc() { date -u +%Y-%m-%dT%H:%M:%SZ; }
is_job() { case $1 in '' | [!a-z0-9]* | *[!a-z0-9_-]*) return 1 ;; *) [ ${#1} -le 48 ] ;; esac; }
number() { case $1 in '' | 0* | *[!0-9]*) return 1 ;; *) [ ${#1} -le 18 ] ;; esac; }

# flush PATH: make a file or folder durable; where sync takes no names, everything
flush() { if [ -n "$sync_one" ]; then sync "$1"; else sync; fi; }
flush_tree() { if [ -n "$sync_one" ]; then find "$1" -exec sync {} +; else sync; fi; }

# hidden FOLDER: a name that nobody else uses (3)
hidden() { seq=$((seq + 1)) tmp=$1/.tmp-$job.$n-$token$seq; }

# fresh FOLDER: have what is remembered of it dropped, by a change (8.1); a reader changes nothing. True, not ":", whose failure would end a shell.
fresh() { [ -z "$job" ] || { true >"$1/.tmp-$job.$n-${token}0" && rm -f "$1/.tmp-$job.$n-${token}0"; } 2>/dev/null; }

# listed PATH: whether a fresh listing shows it; nothing else proves absence (8.1)
listed() {
  fresh "${1%/*}"
  for listed_f in "${1%/*}"/*; do [ "$listed_f" != "$1" ] || return 0; done
  return 1
}

# put FILE TEXT: publish FILE unless it exists (7). 0: it stands, 1: another one does, 2: neither.
# link(1) and not ln: where the target is a folder, ln would link into it.
put() {
  hidden "${1%/*}"
  put_rc=0
  if ! { printf '%s\n' "$2" >"$tmp" && flush "$tmp"; } 2>/dev/null; then
    put_rc=2
  elif link "$tmp" "$1" 2>/dev/null || [ -n "$(find "$tmp" -links +1)" ]; then # 7: two names: it happened
    :
  elif listed "$1"; then
    put_rc=1
  elif (set -C && true >"$1") 2>/dev/null; then # links are refused here
    { cat "$tmp" >"$1" && flush "$1"; } || { rm -f "$1"; put_rc=2; }
  elif listed "$1"; then
    put_rc=1
  else
    put_rc=2
  fi
  rm -f "$tmp"
  [ $put_rc -ne 0 ] || flush "${1%/*}"
  return $put_rc
}

# folder PATH: make a folder in one that exists; the run or the unit may be gone, and is never made anew (4.1)
folder() { [ -d "$1" ] || { mkdir "$1" && chmod g+s "$1"; } 2>/dev/null || [ -d "$1" ]; }

# remove PATH: rename, then remove (7)
remove() {
  hidden "$u/trash"
  case $1 in best/*) [ "$u" = . ] || hidden best ;; esac # no rename reaches a unit elsewhere
  mv -f "$1" "$tmp" 2>/dev/null && rm -rf "$tmp"
}

# ---- sessions (4) ----------------------------------------------------------------------------------------------------

# identify: who this process is (6.1), and whether /proc is that of its own pid namespace
identify() {
  host=$(uname -n) boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
  pidns=$(readlink /proc/self/ns/pid 2>/dev/null) pidns=${pidns#*[} pidns=${pidns%]}
  read -r self_pid self_rest </proc/self/stat
  own_proc=
  [ "$self_pid" != $$ ] || own_proc=1
  process $$ && ticks=$process_ticks || ticks=null
  holder="{\"host\":$(js "$host"),\"boot\":\"$boot\",\"pidns\":\"$pidns\",\"pid\":$$,\"ticks\":$ticks}"
}

# process PID: its state and start ticks; false where it has no place in /proc. A name may hold spaces and ")".
process() {
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  set -f
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  set +f
  process_state=$1 process_ticks=${20}
}

# is_dead HOST BOOT PIDNS PID TICKS: proved on this host; anything else is unknown, and unknown is alive (4.4)
is_dead() {
  [ "$1" = "$host" ] && [ "$2" = "$boot" ] && [ "$3" = "$pidns" ] && [ -n "$boot" ] && [ -n "$pidns" ] && number "$4" || return 1
  case $(kill -0 "$4" 2>&1) in *'o such process'*) return 0 ;; esac # ESRCH; EPERM would be alive
  [ -n "$own_proc" ] && process "$4" || return 1
  if number "$5"; then
    [ "$process_ticks" = "$5" ] || return 0
    [ "$4.$5" != "$$.$ticks" ] || return 0 # this very process, before it became this program
  fi
  set -- "$process_state" "/proc/$4/task"/*
  [ "$1" = Z ] && [ $# -le 2 ] # a zombie with another thread lives
}

# look JOB: a fresh listing of jobs/: top = the highest lock (0: none), ended = 1 where its end stands, marks = the beats
# and taken names of that session
look() {
  fresh jobs
  set -- "$1" "jobs/$1".*
  look_job=$1 top=0 ended='' marks=''
  shift
  for look_f in "$@"; do
    case $look_f in
      *.lock)
        look_k=${look_f#"jobs/$look_job."} look_k=${look_k%.lock}
        if number "$look_k" && [ "$look_k" -gt "$top" ]; then top=$look_k; fi
        ;;
    esac
  done
  for look_f in "$@"; do
    case $look_f in
      "jobs/$look_job.$top.end") ended=1 ;;
      *[!a-z0-9._/-]*) ;; # no name of the protocol
      "jobs/$look_job.$top."*.beat.* | "jobs/$look_job.$top."*.taken.*) marks="$marks $look_f" ;;
    esac
  done
}

# judge JOB: one look at its highest session (4.4), which is closed if it may be. verdict: closed (or there is none),
# alive (one beat was seen), or waiting. The window stands in a private file: "<mark> <first> <last look> <looks>".
judge() {
  now && before=$up
  look "$1" && now
  verdict=closed
  [ "$top" -ne 0 ] && [ -z "$ended" ] || return 0
  verdict=waiting judged=$1 window=$private/watch.$1.$top
  {
    read -r l_token && read -r l_T && read -r l_host && read -r l_boot && read -r l_pidns && read -r l_pid && read -r l_ticks
  } <<END
$(get "jobs/$1.$top.lock" token timeout 'holder|host' 'holder|boot' 'holder|pidns' 'holder|pid' 'holder|ticks')
END
  l_T=$(hundredths "$l_T")
  [ "$l_T" -gt 0 ] || l_T=$cT # a lock that cannot be read yet
  mark=none
  for mark_f in $marks; do
    case $mark_f in "jobs/$1.$top.$l_token."*) mark=$mark_f ;; esac
  done
  case $mark in *.taken.*) close_other expired && return ;; esac # a verdict that somebody has reached
  if is_dead "$l_host" "$l_boot" "$l_pidns" "$l_pid" "$l_ticks"; then
    close_other 'proved dead'
    return
  fi
  read -r w_mark w_first w_last w_looks 2>/dev/null <"$window" || w_mark=
  if [ "$mark" = "$w_mark" ] && [ $((up - before)) -le $((l_T / 6)) ] && [ $((before - w_last)) -le $((l_T / 3)) ]; then
    w_looks=$((w_looks + 1))
    echo "$mark $w_first $up $w_looks" >"$window"
    [ $((before - w_first)) -lt "$l_T" ] || [ "$w_looks" -lt 3 ] || close_other expired
    return 0
  fi
  [ -z "$w_mark" ] || [ "$mark" = "$w_mark" ] || [ "$mark" = none ] || verdict=alive
  echo "$mark $up $up 1" >"$window" # another beat, or this observer was cut off: the window starts again
}

# put_end JOB N TOKEN STATUS REASON MEMBER (6.3)
put_end() { put "jobs/$1.$2.end" "{\"protocol\":\"1.0\",\"job\":\"$1\",\"session\":$2,\"token\":\"$3\",\"status\":\"$4\",\"reason\":$5,\"ended\":\"$(utc)\",$6}"; }

# close_other REASON: close session top of the job that was judged, by the very beat that was watched (4.4)
close_other() {
  other_taken=jobs/$judged.$top.$l_token.taken.${mark##*.}
  case $mark in
    *.beat.*)
      [ -z "$helper" ] || protected || return 1
      mv -f "$mark" "$other_taken" 2>/dev/null || listed "$other_taken" || return 1 # the holder has moved on
      ;;
  esac
  put_end "$judged" "$top" '' crashed "\"$1\"" "\"found_by\":$holder"
  [ $? -ne 2 ] || return 1
  [ "$mark" = none ] || rm -f "$other_taken"
  rm -f "$window"
  verdict=closed
}

# hundredths SECONDS
hundredths() { SECONDS_=$1 awk 'BEGIN { printf "%.0f", ENVIRON["SECONDS_"] * 100 }'; }

# fence JOB N: how many bytes of each log of session N count: its complete lines up to the first NUL, and never less than
# its end says (4.7). A data.parquet may have consumed more only where a log has lost lines; this client cannot read it.
fence() {
  fence_out=
  for fence_f in "scalars/$1.$2.jsonl" "system/$1/$2.jsonl" "media/$1.$2.jsonl" "tables/$1.$2.jsonl" "artifacts/$1.$2.jsonl"; do
    fence_size=$(get "jobs/$1.$2.end" "sizes|$fence_f")
    [ "$fence_size" != - ] || [ -f "$fence_f" ] || continue
    [ ! -f "$fence_f" ] || [ -z "$continues" ] || flush "$fence_f"
    fence_size=$(stream log "$fence_f" | LEAST=$fence_size awk '
      /^\001/ { next }
      /\003/ { exit }
      !/\002$/ { n += length($0) + 1 }
      END { least = ENVIRON["LEAST"] + 0; printf "%.0f", (n > least ? n : least) }')
    fence_out="$fence_out,\"$fence_f\":$fence_size"
  done
  printf '{%s}' "${fence_out#,}"
}

# open_next CONTINUES: open session top + 1 (4.1): the own beat first, then the lock. 1: another was faster.
open_next() {
  n=$((top + 1)) fences=null continues=$1
  token=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
  [ "$top" -eq 0 ] || fences=$(fence "$job" "$top")
  now && opened_at=$up
  true >"jobs/$job.$n.$token.beat.0" || return 2
  put "jobs/$job.$n.lock" "{\"protocol\":\"1.0\",\"job\":\"$job\",\"session\":$n,\"token\":\"$token\",\"timeout\":$T,\"opened\":\"$(utc)\",\"holder\":$holder,\"continues\":${1:-false},\"fence\":$fences,\"project\":$(js "$(basename "${run%/*}")"),\"run\":$(js "${run##*/}"),\"unit\":$([ "$job" = main ] && printf %s "$unit" || echo null)}"
  open_rc=$?
  if [ $open_rc -ne 0 ]; then
    rm -f "jobs/$job.$n.$token.beat.0"
    return $open_rc
  fi
  rm -f "jobs/$job.$top".*.beat.* "jobs/$job.$top".*.taken.* # of a closed session: anyone's (4.4)
  echo "open 0 $opened_at" >"$private/state"
  true >"$private/names.$n"
  # exec, since a redirection of the function alone would keep a copy of what whoever reads the answers waits for
  (exec >/dev/null 3<&- && beat_on) &
  helper=$!
}

# beat_on: the helper that beats (4.2): every T/6 from beat 0 on, for as long as the main shell runs. It says in a private
# file "open <c> <start of the last good beat>", then "closed" or "gone", and wakes the main shell. SIGUSR1 asks for a beat
# now.
beat_on() {
  nap_pid=
  trap 'kill $nap_pid 2>/dev/null; exit' TERM
  trap : USR1
  trap - EXIT
  true >"$private/ready.$n"
  c=0 good=$opened_at first='' looks=0
  while :; do
    sleep "$(seconds $((cT / 6)))" &
    nap_pid=$!
    wait $nap_pid
    kill $nap_pid 2>/dev/null
    # 4.2: whoever beats for another process looks first whether that lives. One that is stopped gets no beat either.
    process $$ && [ "$process_ticks" = "$ticks" ] || process_state=X
    case $process_state in Z | X) rm -rf "$private"; exit ;; T | t) continue ;; esac
    now && first=${first:-$up} looks=$((looks + 1))
    if cd "$run" && mv -f "jobs/$job.$n.$token.beat.$c" "jobs/$job.$n.$token.beat.$((c + 1))"; then
      c=$((c + 1)) good=$up first=''
      beat_state="open $c $good"
      if [ $looks -ge 6 ]; then # about once in T: an end put by hand leaves the beat where it is
        looks=0
        ! listed "jobs/$job.$n.end" || beat_state=closed
      fi
    else
      settle_beat
    fi 2>/dev/null
    echo "$beat_state" >"$private/state.new" && mv -f "$private/state.new" "$private/state" || exit
    while [ "$beat_state" = closed ] && kill -USR1 $$; do nap $((cT / 6)); done # until it has ended this helper
    [ "$beat_state" != gone ] || exit
  done
}

# settle_beat: after an error the name that stands decides (4.2)
settle_beat() {
  beat_state="open $c $good"
  cd "$run" 2>/dev/null || return 0 # perhaps for a moment: protected work ends by itself
  look "$job"
  case "$marks " in
    *" jobs/$job.$n.$token.beat.$((c + 1)) "*) # it happened; it counts from the first one tried
      c=$((c + 1)) good=$first first=''
      beat_state="open $c $good"
      return
      ;;
    *" jobs/$job.$n.$token.beat.$c "*) return ;; # it did not: try again
    *" jobs/$job.$n.$token.taken."*) beat_state=closed ;;
  esac
  if [ "$top" -gt "$n" ] || [ -n "$ended" ]; then
    beat_state=closed
  elif [ "$top" -lt "$n" ]; then
    beat_state=gone # not the folder that was opened (4.9)
  elif [ $((up - good)) -gt "$cT" ]; then
    beat_state=closed
  fi
}

# state: what the helper said last: state, c, good; and the time
state() { until read -r state c good rest <"$private/state"; do :; done 2>/dev/null; now; }

# protected: whether protected work may begin: within 2T/3 of the start of the last good beat (4.5). Waits for a beat.
protected() {
  now && asked=$up
  while state && [ "$state" = open ] && [ $((up - asked)) -le "$cT" ]; do
    [ $((up - good)) -gt $((cT * 2 / 3)) ] || return 0
    nap 10
  done
  return 1
}

stop_beating() { [ -z "$helper" ] || { kill -TERM "$helper"; wait "$helper"; } 2>/dev/null; helper=; }

# holding: whether this process still holds its job, as it was or with a session that continues (4.6).
# 1: fenced, 2: the folder is not the one that was opened (4.2)
holding() {
  cd "$run" 2>/dev/null || return 2
  while :; do
    look "$job"
    state
    if [ "$top" -gt "$n" ]; then
      stop_beating
      fenced=1
      return 1
    elif [ "$top" -lt "$n" ] || [ "$state" = gone ]; then
      return 2
    elif [ -z "$ended" ] && [ "$state" = open ]; then
      return 0
    fi
    stop_beating # closed by a false verdict: put what is missing of it, and go on as the next session
    [ -n "$ended" ] || put_end "$job" "$n" '' crashed '"expired"' '"found_by":null'
    rm -f "jobs/$job.$n.$token".beat.* "jobs/$job.$n.$token".taken.*
    old_n=$n top=$n
    open_next true
    case $? in 1) n=$old_n; continue ;; 2) n=$old_n; return 2 ;; esac
    [ -z "$wrote_finished" ] || write_finished
    adopt "$old_n"
  done
}

# ---- the trainer (5.1, 5.8) ------------------------------------------------------------------------------------------

# split_name NAME: base, use and suffix of an entry name: epoch_012~2.pt (3)
split_name() {
  base=$1 use=1 suffix=
  case ${1#?} in
    *.[A-Za-z]*)
      suffix=${1##*.}
      case $suffix in
        [!A-Za-z]* | *[!A-Za-z0-9]*) suffix= ;;
        *) if [ ${#suffix} -le 16 ]; then suffix=.$suffix base=${1%.*}; else suffix=; fi ;;
      esac
      ;;
  esac
  case $base in
    ?*~*) if number "${base##*~}" && [ "${base##*~}" -ge 2 ]; then use=${base##*~} base=${base%~*}; fi ;;
  esac
}
use_name() { # USE of the name that was split last
  if [ "$1" -eq 1 ]; then printf "%s\n" "$base$suffix"; else printf "%s\n" "$base~$1$suffix"; fi
}

is_entry() { # 3; that it is UTF-8 is for who reads names
  case $1 in '' | .* | *.tmp | FINISHED | */* | *[$control]*) return 1 ;; esac
  [ ${#1} -le 200 ]
}

# file_facts FILE: size, and mtime in ns and sample (6.4) where the tools can say them, else ""
file_facts() {
  mtime='' sample=''
  if facts=$(stat -L -c '%s %Y %y' "$1" 2>/dev/null); then
    size=${facts%% *} facts=${facts#* }
    mtime=${facts##*.}
    mtime=${facts%% *}${mtime%% *}
    case $mtime in *[!0-9]* | ????????????????????*) mtime= ;; ???????????????????) ;; *) mtime= ;; esac
  else
    size=$(($(wc -c <"$1")))
  fi
  [ -n "$b2sum" ] || return 0
  sample=$(if [ "$size" -le 12288 ]; then cat "$1"; else
    head -c 4096 "$1"
    tail -c 4096 "$1"
    tail -c "+$((size / 2 + 1))" "$1" | head -c 4096
  fi | b2sum -l 128)
  sample=${sample%% *}
}
say_facts() { printf '"size":%s%s%s}' "$size" "${mtime:+,\"mtime_ns\":$mtime}" "${sample:+,\"sample\":\"$sample\"}"; }

# files_of PATH: kind and files of what is handed over, as keys of a meta (6.4). A key that is absent is not compared.
files_of() {
  if [ -d "$1" ] && [ -n "$(find "$1" -name "*[$control]*")" ]; then
    printf '"kind":"folder"' # a name that a line cannot say
  elif [ -d "$1" ]; then
    printf '"kind":"folder","files":['
    (cd "$1" && find . -type f) | sort | {
      files_comma=
      while IFS= read -r files_f; do
        file_facts "$1/$files_f"
        printf '%s{"name":%s,' "$files_comma" "$(js "${files_f#./}")"
        say_facts
        files_comma=,
      done
    }
    printf ']'
  else
    file_facts "$1"
    printf '"kind":"file","files":[{"name":"",%s]' "$(say_facts)"
  fi
}

now_ns() { # for orders alone: two of one second must differ
  ns=$(date +%s%N)
  case $ns in *[!0-9]*) seq=$((seq + 1)) ns=$(date +%s)$(printf '%09d' $seq) ;; esac
}

# reserve NAME FIRST FACTS: reserve the first use of NAME from number FIRST on that is free; sets entry (5.1, 5.2)
reserve() {
  split_name "$1"
  use=$2
  while entry=$(use_name "$use"); do
    is_entry "$entry" || return 2
    put "$u/meta/$entry.json" "{\"protocol\":\"1.0\",\"entry\":$(js "$entry"),$3,\"handed_over\":\"$(utc)\"}"
    case $? in 0) return 0 ;; 2) return 2 ;; esac
    use=$((use + 1))
  done
}

# stage PATH FOLDER/NAME: link it file by file, links followed; a copy of what cannot be linked (5.1)
stage() {
  if [ -d "$1" ]; then
    mkdir "$2" || return 1
    for stage_f in "$1"/* "$1"/.[!.]* "$1"/..?*; do
      [ -e "$stage_f" ] || [ -L "$stage_f" ] || continue
      (stage "$stage_f" "$2/${stage_f##*/}") || return 1
    done
  elif [ -f "$1" ]; then
    link "$(readlink -f "$1")" "$2" 2>/dev/null || cp -p "$1" "$2"
  else
    return 1 # a pipe, a device, a link that leads nowhere
  fi
}

# publish: what is staged under the name that was reserved (5.1); 1: another one has it, or it failed. A file is linked,
# which replaces nothing; what cannot be is renamed. mv into a folder keeps the name, and never enters a folder called so.
publish() {
  ! listed "$u/queue/$entry" || return 1
  if [ ! -d "$staged/x" ]; then
    if link "$staged/x" "$u/queue/$entry" 2>/dev/null || [ "$staged/x" -ef "$u/queue/$entry" ]; then return 0; fi
    ! listed "$u/queue/$entry" || return 1 # else links are refused
  fi
  mkdir "$staged/to" && mv "$staged/x" "$staged/to/$entry" && mv -f "$staged/to/$entry" "$u/queue/" 2>/dev/null
  ! listed "$staged/to/$entry" && return 0
  mv "$staged/to/$entry" "$staged/x" && rmdir "$staged/to"
  return 1
}

# enqueue PATH NAME STEP
enqueue() {
  [ -e "$1" ] && is_step "$3" || { answer error 'no such checkpoint, or no step'; return; }
  hidden "$u/queue" && staged=$tmp
  now_ns
  if mkdir "$staged" 2>/dev/null && stage "${1%/}" "$staged/x" && flush_tree "$staged"; then
    split_name "$2"
    first=$use
    while reserve "$2" "$first" "$(files_of "$staged/x"),\"step\":$3,\"main_session\":$(main_number),\"order\":$ns,\"source\":$(js "$1")"; do
      first=$((use + 1))
      if publish; then
        flush "$u/queue"
        rm -rf "$staged"
        answer enqueued "$entry"
        return
      fi
      rm -f "$u/meta/$entry.json" # claimants would compare a plain writer's file with it
      listed "$u/queue/$entry" || break
    done
  fi
  rm -rf "$staged"
  answer error "$1 cannot be handed over"
}

main_number() { if [ "$job" = main ]; then echo "$n"; else (look main; echo "$top"); fi; }

# write_finished: replace FINISHED (5.8, 7); what was handed over is durable
write_finished() {
  hidden "$u/queue"
  printf '{"protocol":"1.0","main_session":%s,"token":"%s","written":"%s"}\n' "$n" "$token" "$(utc)" >"$tmp" &&
    flush "$tmp" && mv -f "$tmp" "$u/queue/FINISHED" && flush "$u/queue" && wrote_finished=1
}

# value TEXT: a JSON number as it is, or a word in quotes (6)
value() {
  case $1 in
    NaN | Infinity | -Infinity) printf '"%s"' "$1" ;;
    *) printf '%s\n' "$1" | grep -Ex -e '-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?' ;;
  esac
}

is_step() { case $1 in *[!0-9-]*) return 1 ;; *) value "$1" >/dev/null ;; esac; }

# pairs TAG VALUE...: as members of an object, each with a comma before it
pairs() {
  while [ $# -ge 2 ]; do
    case $1 in step | time | entry) return 1 ;; esac
    pairs_value=$(value "$2") || return 1
    printf ',%s:%s' "$(js "$1")" "$pairs_value"
    shift 2
  done
  [ $# -eq 0 ]
}

# append LINE: one write a line, to the own log alone (7)
append() { printf '%s\n' "$1" >>"scalars/$job.$n.jsonl"; }

# ---- the evaluator (5.2 to 5.9) --------------------------------------------------------------------------------------
# A claim: ce, ck the entry and the attempt, cj, cs the session that holds it.

claim_path() { printf '%s/claimed/%s.%s/%s/%s' "$u" "$cj" "$cs" "$ck" "$ce"; }

# step_of NAME: the step in an entry's name (5.9)
step_of() {
  split_name "$1"
  BASE=$base awk 'function last(re,  s, r) {
      for (s = ENVIRON["BASE"]; match(tolower(s), re); s = substr(s, RSTART + RLENGTH)) r = substr(s, RSTART, RLENGTH)
      gsub(/[^0-9]/, "", r); return r
    }
    BEGIN {
      r = last("step[=_-]?[0-9]+"); if (r == "") r = last("(epoch[=_-]?|checkpoint-)[0-9]+"); if (r == "") r = last("[0-9]+")
      sub(/^0+/, "", r); print (r != "" && length(r) < 19 ? r : r == "" && ENVIRON["BASE"] ~ /0/ ? 0 : "-")
    }'
}

# facts_of ENTRY: step, main_session and order of its meta, the step else of its name; "-" for what nobody says (5.9)
facts_of() {
  { read -r e_step && read -r e_main && read -r e_order; } <<END
$(get "$u/meta/$1.json" step main_session order)
END
  [ "$e_step" != - ] || e_step=$(step_of "$1")
}
fact() { [ "$2" = - ] || printf '"%s":%s,' "$1" "$2"; }
facts() { fact step "$e_step" && fact main_session "$e_main" && fact order "$e_order"; }

# unchanged PATH ENTRY: whether it is as its meta says (5.1); what has no meta cannot be compared
unchanged() {
  stream record - "$u/meta/$2.json" | awk "$JSON$FILES"'
    function opened() {} function line(s) {}
    function closed(good,  p) {
      if (good) for (I = 1; (p = SUBSEP "files" SUBSEP I) in K; I++)
        if (V[p SUBSEP "name"] !~ /[\001-\037]|\300/) # no name that a line can say: not compared
          print said("size"), said("mtime_ns"), said("sample"), "/" V[p SUBSEP "name"] "/"
    }
    function said(key) { key = SUBSEP "files" SUBSEP I SUBSEP key; return key in K && V[key] != "" ? V[key] : "-" }' |
    while IFS=' ' read -r want_size want_mtime want_sample want_name; do
      want_name=${want_name%/}
      file=$1${want_name%/}
      [ -f "$file" ] || exit 1
      file_facts "$file"
      [ "$size" = "$want_size" ] || exit 1
      [ -z "$mtime" ] || [ "$want_mtime" = - ] || [ "$mtime" = "$want_mtime" ] || exit 1
      [ -z "$sample" ] || [ "$want_sample" = - ] || [ "$sample" = "$want_sample" ] || exit 1
    done
}

# next_name: give the claim the next use of its name, since another file has this one (5.2)
next_name() {
  from=$(claim_path)
  [ -e "$from" ] || return 1
  next_facts=$(files_of "$from")
  now_ns
  facts_of "$ce"
  # what the meta says goes along where it is about this file
  if ! listed "$u/meta/$ce.json" || ! unchanged "$from" "$ce"; then e_step=$(step_of "$ce") e_main=- e_order=$ns; fi
  split_name "$ce"
  reserve "$ce" $((use + 1)) "$next_facts,$(facts)\"source\":$(js "$ce")" || return 1
  protected && mv -f "$from" "${from%/*}/$entry" && ce=$entry
}

# settle STATE FIELDS: put the outcome of the claim; sets stands, the state of the one that stands, and ours where that is
# this one (5.3). An outcome that names another claim is about another file (5.2). 1: the claim is gone, 2: it cannot be put.
settle() {
  ours='' settle_tries=0
  while :; do
    settle_token=
    [ "$cj.$cs" != "$job.$n" ] || settle_token=$token
    put "evals/$ce.$ck.json" "{\"protocol\":\"1.0\",\"entry\":$(js "$ce"),\"attempt\":$ck,\"state\":\"$1\",$2\"ended\":\"$(utc)\",\"job\":\"$cj\",\"session\":$cs,\"token\":\"$settle_token\",\"by\":$holder}"
    case $? in 0) stands=$1 ours=1; return 0 ;; 2) return 2 ;; esac
    { read -r stands && read -r owner_job && read -r owner_session; } <<END
$(get "evals/$ce.$ck.json" state job session)
END
    if [ "$owner_job.$owner_session" = "$cj.$cs" ]; then return 0; fi
    if [ "$(tail -c 1 "evals/$ce.$ck.json" | od -An -tx1 | tr -d ' ')" = 0a ]; then # whole, and about another claim or nobody's
      next_name || return 1
    elif [ $settle_tries -le 20 ]; then # it is being written
      settle_tries=$((settle_tries + 1))
      nap $((cT / 20))
    else # for T: a crash where links are refused (11)
      hidden evals
      protected && mv -f "evals/$ce.$ck.json" "$tmp" || return 1
    fi
  done
}

# count STATE: how many outcomes of the entry up to this attempt have it (5.3)
count() {
  count_k=0 count_n=0
  while [ $count_k -lt "$ck" ]; do
    count_k=$((count_k + 1))
    [ "$(get "evals/$ce.$count_k.json" state)" != "$1" ] || count_n=$((count_n + 1))
  done
  echo $count_n
}

# bring: move the claim as the outcome that stands says, whoever put it (5.3); sets place
bring() {
  from=$(claim_path) place=retry
  case $stands in
    skipped) place=trash ;;
    done) if listed ./best.json; then place=best; else place=trash; fi ;;
    failed) [ "$(count failed)" -lt 3 ] || place=failed ;;
    lost) [ "$(count lost)" -lt 10 ] || place=failed ;;
  esac
  protected || return 1
  case $place in
    trash) remove "$from" ;;
    failed) mv -f "$from" "$u/failed/" ;;
    retry) folder "$u/retry/$((ck + 1))" && mv -f "$from" "$u/retry/$((ck + 1))/" ;;
    best) keep ;;
  esac 2>/dev/null
}

# keep: into best/, as a copy where the trainer has the file too or the unit stands elsewhere (5.6)
keep() {
  if [ "$u" = . ] && [ -z "$(find "$from" -type f -links +1)" ]; then
    mv -f "$from" best/ && flush best
    return
  fi
  if ! listed "best/$ce" && [ -z "$(surplus "$ce" | grep -Fx -e "$ce")" ]; then
    hidden best && copy=$tmp
    mkdir "$copy" && cp -RPp "$from" "$copy/" && flush_tree "$copy" && protected && mv -f "$copy/$ce" best/ && flush best
    rm -rf "$copy"
    listed "best/$ce" || return 1
  fi
  remove "$from"
}

# surplus [ENTRY]: what stands in best/ (and ENTRY, as if it did) with at least keep strictly better ones beside it (5.7)
surplus() {
  { read -r mode && read -r keep && IFS= read -r rule_tag; } <<END
$(get ./best.json mode keep tag)
END
  [ "$keep" != - ] || keep=1
  number "$keep" || return 0 # 0: all are kept
  for surplus_f in best/* ${1:+"best/$1"}; do
    for surplus_e in "evals/${surplus_f#best/}".*.json; do
      surplus_k=${surplus_e#"evals/${surplus_f#best/}."}
      ! number "${surplus_k%.json}" || stream record "${surplus_f#best/}" "$surplus_e"
    done
  done | MODE=$mode TAG=$rule_tag KEEP=$keep awk "$JSON$FILES"'
    function opened() {} function line(s) {}
    function closed(good,  v, p) {
      p = SUBSEP "scores" SUBSEP ENVIRON["TAG"]; v = V[p]
      if (!good || V[SUBSEP "state"] != "done" || !(p in K) || K[p] == "s" && v !~ /^(NaN|-?Infinity)$/ || K[p] !~ /^[sn]$/) return
      SIGN[NAME] = v == "NaN" ? -2 : v == "Infinity" ? 1 : v == "-Infinity" ? -1 : 0
      NUM[NAME] = K[p] == "n" ? v + 0 : 0; AT_STEP[NAME] = whole(SUBSEP "step")
      if (ENVIRON["MODE"] == "min" && SIGN[NAME] != -2) { SIGN[NAME] = -SIGN[NAME]; NUM[NAME] = -NUM[NAME] }
    }
    function better(a, b) {
      if (SIGN[a] != SIGN[b]) return SIGN[a] > SIGN[b]
      if (NUM[a] != NUM[b]) return NUM[a] > NUM[b]
      if (AT_STEP[a] != AT_STEP[b]) return AT_STEP[b] == "" || AT_STEP[a] != "" && less(AT_STEP[a], AT_STEP[b])
      return ("x" a) < ("x" b)
    }
    END { for (a in SIGN) { n = 0; for (b in SIGN) if (better(b, a)) n++; if (n >= ENVIRON["KEEP"] + 0) print a } }'
}

# prune: take from best/ what is not among the best (5.7)
prune() {
  ! listed ./best.json || surplus | while IFS= read -r prune_e; do protected && remove "best/$prune_e"; done
}

# adopt N: the claim of session N, which this one continues: returned, then straight into the own claim of k + 1 (5.4)
adopt() {
  [ -n "$ce" ] || return 0
  if settle returned "\"reason\":\"adopted\",$(facts)" && [ "$stands" = returned ]; then
    from=$(claim_path)
    folder "$u/claimed/$job.$n" && folder "$u/claimed/$job.$n/$((ck + 1))" && protected &&
      mv -f "$from" "$u/claimed/$job.$n/$((ck + 1))/" 2>/dev/null && cs=$n ck=$((ck + 1)) && return
  elif [ -e "$(claim_path)" ]; then
    bring
  fi
  ce= # somebody recovered it
}

# recover: bring home the claims of closed sessions (5.5), and empty the trash
recover() {
  for recover_f in "$u"/claimed/*; do
    owner=${recover_f##*/}
    cj=${owner%.*} cs=${owner##*.}
    number "$cs" && [ "$owner" != "$job.$n" ] && listed "jobs/$owner.end" || continue
    for recover_e in "$recover_f"/*/*; do
      ce=${recover_e##*/} ck=${recover_e%/*} ck=${ck##*/}
      number "$ck" && is_entry "$ce" && [ -e "$recover_e" ] || continue
      facts_of "$ce"
      settle lost "\"reason\":null,$(facts)" && bring
    done
    rmdir "$recover_f"/* "$recover_f" 2>/dev/null
  done
  ce=
  for recover_f in "$u"/trash/* "$u"/trash/.[!.]*; do [ ! -e "$recover_f" ] || rm -rf "$recover_f"; done
}

# waiting: what waits, a path a line: what was never tried first. Refused names are left (3).
waiting() {
  fresh "$u/queue"
  for waiting_f in "$u"/queue/* "$u"/retry/*/*; do
    if is_entry "${waiting_f##*/}" && { [ -e "$waiting_f" ] || [ -L "$waiting_f" ]; }; then printf '%s\n' "$waiting_f"; fi
  done | awk "$JSON"'is_utf8($0)'
}

# claim PATH: one rename into the own claim (5.2); 1: another was faster
claim() {
  ce=${1##*/} ck=1 cj=$job cs=$n
  case ${1#"$u"/} in retry/*) ck=${1%/*} ck=${ck##*/} ;; esac
  name=$ce
  if [ "$ck" -eq 1 ] && grep -qFx -e "$ce" "$private/names.$n"; then
    # A second file of one name in one session gets its next name in the very rename: two claims under one path could
    # not be told apart afterwards.
    split_name "$ce"
    now_ns
    reserve "$ce" $((use + 1)) "$(files_of "$1"),$(fact step "$(step_of "$ce")")\"order\":$ns,\"source\":$(js "$ce")" || return 1
    name=$entry
  fi
  folder "$u/claimed/$job.$n" && folder "$u/claimed/$job.$n/$ck" && protected || return 1
  [ "$ck" -gt 1 ] || printf '%s\n' "$ce" "$name" >>"$private/names.$n"
  if [ "$name" = "$ce" ]; then mv -f "$1" "$u/claimed/$job.$n/$ck/"; else mv -f "$1" "$u/claimed/$job.$n/$ck/$name"; fi 2>/dev/null
  ce=$name
  listed "$(claim_path)" || { ce=; return 1; }
  if [ "$ck" -eq 1 ] && listed "evals/$ce.1.json"; then # an earlier file is X (5.2)
    [ "$(get "evals/$ce.1.json" job session | tr '\n' .)" = "$job.$n." ] || next_name || { ce=; return 1; }
  fi
}

# last_step: the last step that main has logged
last_step() {
  tail -n 2 "scalars/main.$top.jsonl" >"$private/last" 2>/dev/null # the last line may not be whole
  stream log "$private/last" | awk "$JSON$FILES"'
    function opened() {} function closed(good) {}
    function line(s) { if (parse(s) && whole(SUBSEP "step") != "") STEP = whole(SUBSEP "step") }
    END { print (STEP == "" ? "-" : STEP) }'
}

# take: one look
take() {
  [ -z "$ce" ] || { answer error "$ce is claimed"; return; }
  others=
  for take_f in jobs/*.lock; do # close what is dead or expired (4.4), once a job
    take_j=${take_f#jobs/} take_j=${take_j%%.*}
    case "$others $job " in *" $take_j "*) continue ;; esac
    is_job "$take_j" || continue
    others="$others $take_j"
    judge "$take_j"
  done
  recover
  waiting >"$private/waiting"
  while IFS= read -r take_path <&4; do
    claim "$take_path" || continue
    facts_of "$ce"
    if [ "$e_order" = - ]; then # 5.9: what neither the meta nor the name tells, the claimant states
      now_ns
      look main
      e_order=$ns
      [ "$e_main" != - ] || e_main=$top
      [ "$e_step" != - ] || e_step=$(last_step)
    fi
    if unchanged "$(claim_path)" "$ce"; then
      answer taken "$ce" "$ck" "$(cd "$u" && pwd -P)/claimed/$cj.$cs/$ck/$ce"
      return
    fi
    settle failed "\"reason\":\"changed\",$(facts)" && bring
    ce=
  done 4<"$private/waiting"
  if over && over; then answer over; else answer none; fi # twice: an entry moves between two listings
}

# over: whether an evaluator may end (5.8)
over() {
  [ -z "$(waiting)" ] || return 1
  for over_j in $others; do # a side job that hands over keeps evaluators waiting
    look "$over_j"
    [ "$over_j" = main ] || [ "$top" -eq 0 ] || [ -n "$ended" ] || [ "$(get "jobs/$over_j.$top.lock" hands_over)" != true ] || return 1
  done
  look main
  main_status=running
  [ -z "$ended" ] || main_status=$(get "jobs/main.$top.end" status)
  case $main_status in
    failed | crashed) # it may come back: linger 10 minutes, and at least 4T
      now
      [ -f "$private/linger.$top" ] || echo "$up" >"$private/linger.$top"
      read -r linger <"$private/linger.$top"
      [ $((up - linger)) -lt 60000 ] || [ $((up - linger)) -lt $((4 * cT)) ] || return 0
      ;;
  esac
  for over_f in "$u"/claimed/*/*/*; do [ ! -e "$over_f" ] || return 1; done
  [ "$main_status" != finished ] || return 0
  listed "$u/queue/FINISHED" || return 1
  [ "$(get "$u/queue/FINISHED" main_session)" = "$top" ]
}

# outcome STATE [REASON | TAG VALUE...]
outcome() {
  [ -n "$ce" ] || { answer error 'nothing is claimed'; return; }
  o_state=$1 o_step=$e_step scores='' o_reason=null
  shift
  o_time=$(date +%s)
  case $o_state in
    done) scores=$(pairs "$@") || { answer error 'a score is no number'; return; } ;;
    failed | skipped) o_reason=$(js "${1-}") ;;
    returned) ;;
    *) answer error "no such outcome: $o_state"; return ;;
  esac
  # 5.1: again before done. A claim that is gone is another matter: the outcome that stands decides.
  if [ "$o_state" = done ] && [ -e "$(claim_path)" ] && ! unchanged "$(claim_path)" "$ce"; then o_state=failed o_reason='"changed"' scores=; fi
  settle "$o_state" "\"reason\":$o_reason,$(facts)\"time\":$o_time,\"scores\":{${scores#,}},"
  case $? in
    1) ce=; answer error 'the claim is gone'; return ;;
    2) answer error 'the outcome cannot be written'; return ;;
  esac
  bring
  if [ -n "$ours" ] && [ "$stands" = done ]; then
    # 5.9: after it stands, and by none but the one whose outcome it is
    [ -z "$scores" ] || [ "$o_step" = - ] || append "{\"step\":$o_step,\"time\":$o_time$scores,\"entry\":$(js "$ce.$ck")}"
    prune
  fi
  ce=
  answer moved "$place"
}

# ---- the commands (docs/clients.md) ----------------------------------------------------------------------------------

answer() { (IFS=$tab; printf '%s\n' "$*"); }

# open_job JOB T
open_job() {
  job=$1 T=$2 n=0
  is_job "$job" && value "$T" >/dev/null || { answer error 'no job or no timeout'; return; }
  cT=$(hundredths "$T")
  [ "$cT" -gt 0 ] || { answer error 'T is too short'; return; }
  if [ "$job" = main ] && [ ! -d "$run/jobs" ]; then
    mkdir -p "$run" && cd "$run" || { answer error "$run cannot be made"; return; }
    for open_f in jobs scalars evals best queue meta claimed retry failed trash; do folder $open_f; done
  fi
  cd "$run" 2>/dev/null || { answer refused 'there is no such run'; return; }
  look main
  [ "$job" = main ] || [ "$top" -gt 0 ] || { answer refused 'the run has no main job'; return; }
  case $(locks | FINISHED='' UNIT='' awk "$JSON$FILES$READ") in
    *'"writable": false'*) answer refused 'the protocol of this run is not 1'; return ;; # 10
  esac
  find_unit
  while :; do
    judge "$job"
    case $verdict in
      alive) answer held "$l_host" "$l_pid"; return ;;
      closed)
        look "$job"
        [ "$top" -eq 0 ] || [ -n "$ended" ] || continue
        open_next ''
        case $? in 0) break ;; 2) answer error 'the lock cannot be written'; return ;; esac
        ;;
    esac
    nap $((cT / 8 > 50 ? 50 : cT / 8))
  done
  [ "$job" != main ] || [ -z "$u" ] || ! listed "$u/queue/FINISHED" || rm -f "$u/queue/FINISHED" # 5.8
  [ "$job" = main ] || prune # 5.7: at the start, and at the end
  answer opened "$n"
}

# beat: have the helper beat now
beat() {
  state
  beat_c=$c
  until [ -f "$private/ready.$n" ]; do nap 5; done
  while state && [ "$state" = open ] && [ "$c" = "$beat_c" ]; do
    kill -USR1 "$helper" 2>/dev/null
    nap 5
  done
  answer beaten "$c"
}

log_line() { # STEP TIME TAG VALUE...
  log_step=$1 log_time=$2
  shift 2
  if is_step "$log_step" && value "$log_time" >/dev/null && log_pairs=$(pairs "$@") && append "{\"step\":$log_step,\"time\":$log_time$log_pairs}" 2>/dev/null; then answer logged; else answer error 'the line cannot be written'; fi
}

# best MODE TAG KEEP: put once a run (5.7)
best() {
  case $1 in max | min) ;; *) answer error "no direction: $1"; return ;; esac
  [ "$3" = 0 ] || number "$3" || { answer error "no number: $3"; return; }
  put ./best.json "{\"protocol\":\"1.0\",\"mode\":\"$1\",\"tag\":$(js "$2"),\"keep\":$3}"
  best_rule=$(get ./best.json mode keep tag)
  if [ "$best_rule" = "$1$nl$3$nl$2" ] || [ "$3 $best_rule" = "1 $1$nl-$nl$2" ]; then
    prune
    answer ruled
  else
    answer refused 'best.json has another rule'
  fi
}

# close_job STATUS [REASON] (4.3): claims are given back, then the end, then the beat goes
close_job() {
  if [ -n "$ce" ]; then
    settle returned "\"reason\":\"the session ends\",$(facts)" && bring
    ce=
  fi
  [ "$job" = main ] || prune
  close_sizes=
  if [ -f "scalars/$job.$n.jsonl" ]; then
    flush "scalars/$job.$n.jsonl"
    close_sizes="\"scalars/$job.$n.jsonl\":$(wc -c <"scalars/$job.$n.jsonl" | tr -d ' ')"
  fi
  close_reason=null
  [ -z "${2-}" ] || close_reason=$(js "$2")
  put_end "$job" "$n" "$token" "$1" "$close_reason" "\"sizes\":{$close_sizes}"
  case $? in
    1) holding && close_job "$@"; return ;; # closed by a false verdict meanwhile: the next session has the true status
    2) return 2 ;;
  esac
  stop_beating
  rm -f "jobs/$job.$n.$token".beat.*
}

give_up() { [ -z "$n" ] || [ -n "$fenced" ] || { holding && close_job failed "$1"; }; } # 4.8

obey() {
  command=$1
  shift
  if [ "$command" = open ]; then
    if [ -n "$n" ]; then answer error 'a session was opened before'; else open_job "$@"; [ -n "$helper" ] || n=; fi
    return
  fi
  [ -n "$n" ] || { answer error 'no session is open'; return; }
  [ -n "$fenced" ] || holding
  case $? in
    2) answer error 'the run is not where it was'; return ;;
  esac
  if [ -n "$fenced" ]; then
    answer fenced
    [ "$command" != close ] || exit 0
    return
  fi
  case $command in # 2: a unit that is unreachable is not an empty one
    enqueue | finish | take | outcome) [ -n "$u" ] || { answer error 'the unit cannot be reached'; return; } ;;
  esac
  case $command in
    beat) beat ;;
    log) log_line "$@" ;;
    enqueue) enqueue "$@" ;;
    finish) if write_finished; then answer finished; else answer error 'FINISHED cannot be written'; fi ;;
    best) best "$@" ;;
    take) take ;;
    outcome) outcome "$@" ;;
    close)
      if close_job "$@"; then answer closed; elif [ -n "$fenced" ]; then answer fenced; else answer error 'the end cannot be written'; return; fi
      exit 0
      ;;
    *) answer error "no such command: $command" ;;
  esac
}

drive() {
  run=$1
  private=${TMPDIR:-/tmp}/fsrun-sh-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
  mkdir -m 700 "$private" || exit 1
  trap 'stop_beating; rm -rf "$private"' EXIT
  trap 'give_up terminated; exit 143' TERM
  trap 'give_up interrupted; exit 130' HUP INT
  identify
  sync_one=
  ! sync "$private" 2>/dev/null || sync_one=1
  b2sum=
  case $(b2sum -l 128 </dev/null 2>/dev/null) in cae66941d9efbd404e4d88758ea67670*) b2sum=1 ;; esac
  exec 3<&0 </dev/null
  woken='' command_line=''
  trap 'woken=1' USR1
  while command_part=; do
    if IFS= read -r command_part <&3; then
      command_line=$command_line$command_part
      set -f
      IFS=$tab
      # shellcheck disable=SC2086
      set -- $command_line
      set +f
      IFS=" $tab$nl"
      command_line=
      [ $# -eq 0 ] || obey "$@"
    elif [ -n "$woken" ]; then
      command_line=$command_line$command_part # the signal came in the middle of a line
    else
      break
    fi
    [ -z "$woken" ] || [ -z "$n" ] || [ -n "$fenced" ] || holding # 4.6: an idle holder goes on as well
    woken=
  done
  give_up 'input ended'
}

case "$# ${1-}" in
  '2 read') read_run "$2" ;;
  '2 drive') drive "$2" ;;
  *) echo 'usage: fsrun.sh read|drive RUN' >&2; exit 2 ;;
esac
