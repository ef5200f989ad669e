#!/bin/sh
# A client of the fsrun protocol in POSIX shell, with the tools of Linux (coreutils or busybox: sync FILE, mv -T, stat).
#     fsrun.sh read RUN      print what the run folder RUN says, as one JSON object
#     fsrun.sh drive RUN     obey the commands of docs/clients.md from standard input
# Numbers such as "4.4" are sections of protocol.md.
# After a crash: whatever was done stands, and the next session or any evaluator goes on from there (9).
set -u
export LC_ALL=C # bytes, in every tool
unset CDPATH
nl='
' tab=$(printf '\t') control=$(printf '\001-\037\177') # for patterns: control characters
job='' n='' cT=0 token='' helper='' fenced='' continues='' wrote_finished='' ce='' u=. seq=0

# ---- JSON and reading ------------------------------------------------------------------------------------------------

# parse(S) numbers the values of a text, 1 being the whole: K their kinds (s n b z w { [), V their texts (numbers as
# they stand), NODE[id, key] what is in them, and KEY[id, 1..N[id]] under which keys.
JSON='
BEGIN {
  for (i = 1; i < 256; i++) CHR[i] = sprintf("%c", i)
  for (i = 1; i < 32; i++) CODE[CHR[i]] = sprintf("\\u%04x", i)
  ESC["\""] = "\""; ESC["\\"] = "\\"; ESC["/"] = "/"
  ESC["b"] = "\b"; ESC["f"] = "\f"; ESC["n"] = "\n"; ESC["r"] = "\r"; ESC["t"] = "\t"
  WORD = "^(NaN|-?Infinity)$"; C = "[\200-\277]"; TWO63 = 9223372036854775808
  NUMBER = "^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$"
  UTF8 = "[\302-\337]" C "|\340[\240-\277]" C "|[\341-\354\356\357]" C C "|\355[\200-\237]" C
  UTF8 = UTF8 "|\360[\220-\277]" C C "|[\361-\363]" C C C "|\364[\200-\217]" C C
}
function is_utf8(s) { # what is left without the sequences that are allowed must be ASCII
  if (s ~ /[\200-\377]/) gsub(UTF8, "", s)
  return s !~ /[\200-\377]/
}
function utf8(u) { # NUL, which awk cannot hold, is written overlong, as no valid text has it
  if (u > 0 && u < 128) return CHR[u]
  if (u < 2048) return CHR[192 + int(u / 64)] CHR[128 + u % 64]
  if (u < 65536) return CHR[224 + int(u / 4096)] CHR[128 + int(u / 64) % 64] CHR[128 + u % 64]
  return CHR[240 + int(u / 262144)] CHR[128 + int(u / 4096) % 64] CHR[128 + int(u / 64) % 64] CHR[128 + u % 64]
}
function hex(s,  i, u) {
  if (s !~ /^[0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f]/) return -1
  for (i = 1; i <= 4; i++) u = u * 16 + index("0123456789abcdef", tolower(substr(s, i, 1))) - 1
  return u
}
function unescaped(s,  out, i, c, u, low) { # the text that stands between two quotes
  if (s ~ /[\001-\037]/) BAD = 1
  while ((i = index(s, "\\")) > 0 && !BAD) {
    out = out substr(s, 1, i - 1); c = substr(s, i + 1, 1); s = substr(s, i + 2)
    if (c in ESC) { out = out ESC[c]; continue }
    u = c == "u" ? hex(s) : -1; s = substr(s, 5)
    if (u >= 55296 && u < 56320 && substr(s, 1, 2) == "\\u") {
      low = hex(substr(s, 3)); s = substr(s, 7)
      u = low >= 56320 && low < 57344 ? 65536 + (u - 55296) * 1024 + low - 56320 : -1
    }
    if (u < 0 || u >= 55296 && u < 57344) BAD = 1 # half of a pair is no text
    else out = out utf8(u)
  }
  return out s
}
function quoted(s,  out, i, c) {
  gsub(/["\\]/, "\\\\&", s); gsub(/\300\200/, "\\u0000", s)
  if (s !~ /[\001-\037]/) return "\"" s "\""
  for (i = 1; i <= length(s); i++) { c = substr(s, i, 1); out = out (c in CODE ? CODE[c] : c) }
  return "\"" out "\""
}
function token(kind, text) { T[++TOKENS] = kind; X[TOKENS] = text }
function words(s,  cut, piece, m, j, w) { # what stands between two texts, by pieces: long ones are slow in some awks
  for (; s != "" && !BAD; s = substr(s, cut + 1)) {
    for (cut = 256; substr(s, cut, 1) ~ /[^][{}:, \t\r\n]/; ) cut++
    piece = substr(s, 1, cut); gsub(/[][{}:,]/, " & ", piece); m = split(piece, w, /[ \t\r\n]+/)
    for (j = 1; j <= m && !BAD; j++) {
      if (w[j] ~ NUMBER) token("n", w[j])
      else if (w[j] ~ /^[][{}:,]$/) { token(w[j] ""); if ((DEPTH += (w[j] ~ /[[{]/) - (w[j] ~ /[]}]/)) > 100) BAD = 1 }
      else if (w[j] ~ /^(true|false)$/ || BARE && w[j] ~ WORD) token(w[j] ~ WORD ? "w" : "b", w[j])
      else if (w[j] == "null") token("z")
      else if (w[j] != "") BAD = 1
    }
  }
}
function tokens(s,  n, i, part, text) { # T their kinds, X their texts
  TOKENS = 0; n = split(s, part, "\"")
  for (i = 1; i <= n && !BAD; i++) {
    words(part[i])
    if (i == n) break
    for (text = part[++i]; match(part[i], /\\+$/) && RLENGTH % 2 && i < n; ) text = text "\"" part[++i]
    if (i == n) BAD = 1
    else token("s", unescaped(text))
  }
  token("")
}
function element(  id, key, last) { # the value at the next token, and all that is in it
  id = ++IDS; K[id] = T[++AT]; V[id] = X[AT]; N[id] = 0
  if (K[id] !~ /^[snbzw{[]$/) BAD = 1
  if (BAD || K[id] !~ /[{[]/) return id
  last = K[id] == "{" ? "}" : "]"
  if (T[AT + 1] == last) { AT++; return id }
  do {
    key = N[id] + 1
    if (last == "}") { key = X[++AT]; if (T[AT] != "s" || T[++AT] != ":") BAD = 1 }
    if (!((id, key) in NODE)) KEY[id, ++N[id]] = key
    NODE[id, key] = element() # 8.2: of duplicate keys the last counts
  } while (!BAD && T[++AT] == ",")
  if (T[AT] != last) BAD = 1
  return id
}
function parse(s) { # whether it is one JSON value
  split("", NODE); BAD = AT = IDS = DEPTH = 0
  if (!is_utf8(s)) return 0
  tokens(s)
  if (!BAD) element()
  return !BAD && AT == TOKENS - 1
}
function find(key, id) { id = id ? id : 1; return (id, key) in NODE ? NODE[id, key] : 0 } # 0, which is nothing
function whole(id,  v) { # a whole number of 64 bits as digits, or ""
  if (K[id] != "n") return ""
  v = V[id]; if (v ~ /[.eE]/) { v += 0; v = v == int(v) && v > -TWO63 && v < TWO63 ? sprintf("%.0f", v) : "" }
  if (v == "-0") v = "0"
  return v != "" && !less("9223372036854775807", v) && !less(v, "-9223372036854775808") ? v : ""
}
function less(a, b,  m) { # two whole numbers, digit by digit: a double is exact to 2^53 only
  m = a ~ /^-/
  if (m != (b ~ /^-/)) return m
  if (m) { m = substr(a, 2); a = substr(b, 2); b = m }
  return length(a) != length(b) ? length(a) < length(b) : ("x" a) < ("x" b)
}
function scalar(id) { # 8.2: a number or a word as JSON, else ""
  if (K[id] ~ /[sw]/) return V[id] ~ WORD ? "\"" V[id] "\"" : ""
  if (K[id] != "n") return ""
  if (V[id] + 0 > 1.797693134862315708e308) return "\"Infinity\""
  return V[id] + 0 < -1.797693134862315708e308 ? "\"-Infinity\"" : V[id]
}'

# stream KIND NAME [FILE]: a file for awk. NUL (8.2: reading stops there) becomes \003; \001 begins a file and \002 ends
# one, so the text before \002 is what has no newline yet.
stream() {
  case $2 in *[$control]*) return ;; esac # no name of the protocol
  printf '\001%s\t%s\n' "$1" "$2"
  [ ! -f "${3-$2}" ] || tr '\000\001\002\003' '\003\004\004\004' <"${3-$2}" 2>/dev/null; printf '\002\n'
}
# What programs are told: EVENT is opened, line (of a log, as far as it may count) or closed; GOOD: it is a record.
FILES='
{ EVENT = "" }
/^\001/ {
  EVENT = "opened"; split(substr($0, 2), HEAD, "\t"); KIND = HEAD[1]; NAME = HEAD[2]
  RECORD = ""; SIZE = LINES = CUT = BARE = 0
}
/\002$/ {
  sub(/^\357\273\277/, "", RECORD); EVENT = "closed"
  GOOD = length($0) == 1 && SIZE <= 67108864 && KIND != "log" && parse(RECORD) && K[1] == "{" # 6: at most 64 MiB
}
EVENT == "" {
  LINES++; SIZE += length($0) + 1
  if (KIND != "log" && SIZE <= 67108864) RECORD = RECORD $0 "\n"
  if (/\003/) CUT = 1
  if (KIND == "log" && !CUT) EVENT = "line"
}'
record() { # FILE VARIABLE=KEY...: what a record says ("a|b": b in a); empty: it is not there, null or no record (6)
  record_f=$1; shift
  eval "$(stream record - "$record_f" | WANTED="$*" awk "$JSON$FILES"'
    EVENT == "closed" {
      n = split(ENVIRON["WANTED"], want, " ")
      for (i = 1; i <= n; i++) {
        m = split(substr(want[i], index(want[i], "=") + 1), key, "|"); id = GOOD
        for (j = 1; j <= m && id; j++) id = find(key[j], id)
        v = id ? V[id] : ""; gsub(/\047/, "\047\\\\\047\047", v)
        print substr(want[i], 1, index(want[i], "=")) "\047" v "\047"
      }
    }')"
}
js() { # TEXT: as JSON
  case $1 in
    *[!A-Za-z0-9._/:=+~-]*) TEXT=$1 awk "$JSON"' BEGIN { printf "%s", quoted(ENVIRON["TEXT"]) }' ;;
    *) printf '"%s"' "$1" ;;
  esac
}

# 8.3 and docs/clients.md: the run as one object. Kinds: lock end log outcome, and place, the path of an entry.
# A point has TAG, WHO ("#g": group g of main, a side job, "~": an outcome), KEY_OF (step, outcome), STEP, VALUE, TIME.
READ='
function is_job(s) { return length(s) <= 48 && s ~ /^[a-z0-9][a-z0-9_-]*$/ }
function is_number(s) { return length(s) <= 18 && s ~ /^[1-9][0-9]*$/ }
function is_entry(s) { return s !~ /^[.]|[.]tmp$|[\001-\037\177]|^FINISHED$|^$/ && length(s) <= 200 && is_utf8(s) }
function group(n) { while (("main", n) in CONTINUES) n--; return n }
EVENT == "opened" && KIND == "place" {
  x = NAME; sub(/.*\//, "", x); NAME = substr(NAME, 1, length(NAME) - length(x) - 1)
  if (NAME == "meta") sub(/[.]json$/, "", x)
  if (NAME !~ /^(best|failed|queue|meta|retry\/[1-9][0-9]*)$/ &&
    NAME !~ /^claimed\/[a-z0-9][a-z0-9_-]*[.][1-9][0-9]*\/[1-9][0-9]*$/) next
  sub(/\/.*/, "", NAME)
  if (is_entry(x) && PLACE[x] == "") PLACE[x] = NAME == "meta" ? "" : NAME
}
EVENT == "opened" && KIND == "outcome" { # names are read from the right (3)
  sub(/.*\//, "", NAME); X_K = ""
  if (match(NAME, /[.][1-9][0-9]*[.]json$/) && RLENGTH <= 24 && is_entry(substr(NAME, 1, RSTART - 1))) {
    ENTRY = substr(NAME, 1, RSTART - 1); ATTEMPT = substr(NAME, RSTART + 1, RLENGTH - 6)
    STANDS[X_K = ENTRY "." ATTEMPT] = 1; PLACE[ENTRY] = PLACE[ENTRY]
  } else KIND = "unknown"
}
EVENT == "opened" && KIND ~ /^(lock|end|log)$/ {
  base = NAME; sub(/.*\//, "", base); n = split(base, f, "."); OWNER = f[1]; SESSION = f[2] + 0
  PIECE = n == 4 ? substr(f[3], 2) + 1 : 0; good = n == 3 || n == 4 && KIND == "log" && f[3] ~ /^s(0|[1-9][0-9]*)$/
  if (!good || !is_job(OWNER) || !is_number(f[2])) KIND = "unknown"
  if (KIND == "lock" && SESSION > HIGHEST[OWNER]) HIGHEST[OWNER] = SESSION
  if (KIND == "end") { STATUS[OWNER, SESSION] = "crashed"; REASON[OWNER, SESSION] = "null" }
}
EVENT == "closed" && KIND == "lock" && GOOD {
  p = find("protocol"); m = find("must_understand")
  if (K[p] != "s" || V[p] !~ /^0*1([.]|$)/ || m && (K[m] != "[" || N[m])) REFUSED = 1 # section 10
  if (V[find("job")] != OWNER || whole(find("session")) != SESSION) next
  if (K[find("continues")] V[find("continues")] == "btrue") CONTINUES[OWNER, SESSION] = 1
  if (K[p = find("fence")] != "{") next
  FENCED[OWNER, SESSION - 1] = 1 # 4.7
  for (i = 1; i <= N[p]; i++) FENCE[KEY[p, i]] = V[find(KEY[p, i], p)] + 0
}
EVENT == "closed" && KIND == "end" && GOOD {
  if ((s = V[find("status")]) ~ /^(finished|failed|crashed)$/) STATUS[OWNER, SESSION] = s
  if (K[p = find("reason")] == "s") REASON[OWNER, SESSION] = quoted(V[p])
}
EVENT == "closed" && KIND == "outcome" && GOOD {
  s = V[find("state")]; if (s !~ /^(done|failed|lost|skipped|returned)$/) next
  if (K[find("entry")] K[find("job")] != "ss" || whole(find("session")) == "") next
  OUTCOMES[ENTRY] = OUTCOMES[ENTRY] (OUTCOMES[ENTRY] == "" ? "" : ", ") "\"" ATTEMPT "\": \"" s "\""
  ORDER[X_K] = whole(find("order")); NUMBER_OF[X_K] = ATTEMPT + 0
  if ((m = whole(find("main_session"))) != "") BY[X_K] = group(m + 0)
  if ((X_K in LINED) || s != "done" || (m = whole(find("step"))) == "") next
  p = find("scores"); t = find("time")
  if (K[p] != "{") next
  for (i = 1; i <= N[p]; i++) if ((v = scalar(NODE[p, KEY[p, i]])) != "") point(KEY[p, i], "~", X_K, m, v, t)
}
EVENT == "line" {
  if (((OWNER, SESSION) in FENCED) && !PIECE && SIZE > FENCE[NAME] + 0) { CUT = 1; next }
  BARE = 1 # 8.2: in lines the bare words are taken too
  if (LINES == 1) sub(/^\357\273\277/, "")
  if (/^[ \t\r]*$/) next
  bad = !parse($0) || K[1] != "{" || (step = whole(find("step"))) == "" || K[p = find("entry")] ~ /[^sz]/
  if (!bad && (named = K[p] == "s")) LINED[V[p]] = 1
  count = bad ? 0 : N[1]
  for (i = 1; i <= count; i++) {
    tag = KEY[1, i]; id = find(tag)
    if (tag ~ /^(step|time|entry)$/ || K[id] == "z") continue
    if ((v = scalar(id)) == "") bad = 1
    else if (named) point(tag, "~", V[p], step, v, find("time"))
    else point(tag, OWNER == "main" ? "#" group(SESSION) : OWNER, step, step, v, find("time"))
  }
  if (bad) SKIPPED[NAME] = SKIPPED[NAME] (SKIPPED[NAME] == "" ? "" : ", ") LINES
}
function point(tag, who, key, step, v, t,  p, n) { # of one job and step the last: session, log before pieces, line
  if (who == "~" && key ~ /[\001-\037]/) return # the name of no outcome
  p = tag SUBSEP who SUBSEP key
  if (!(p in INDEX)) {
    if (!(tag in POINTS)) TAGS[++TAG_COUNT] = tag
    POINT[tag, ++POINTS[tag]] = INDEX[p] = ++P
  } else if (who != "~" && (AGE[INDEX[p]] > SESSION || AGE[INDEX[p]] == SESSION && PART[INDEX[p]] > PIECE)) return
  n = INDEX[p]; TAG[n] = tag; WHO[n] = who; KEY_OF[n] = key; STEP[n] = step; VALUE[n] = v
  TIME[n] = K[t] == "n" ? V[t] : ""; AGE[n] = SESSION; PART[n] = PIECE
  if (who !~ /^#/) return
  GROUPS[who] = 1
  if (!((tag, who) in LOW) || less(step, LOW[tag, who])) LOW[tag, who] = step
}
function is_void(n,  tag, g, h) { # whether a later group of main has logged the tag at this step or before
  tag = TAG[n]; g = WHO[n]
  if (!((tag, g) in CUT_AT)) {
    CUT_AT[tag, g] = ""
    for (h in GROUPS) if (substr(h, 2) + 0 > substr(g, 2) + 0 && (tag, h) in LOW)
      if (CUT_AT[tag, g] == "" || less(LOW[tag, h], CUT_AT[tag, g])) CUT_AT[tag, g] = LOW[tag, h]
  }
  return CUT_AT[tag, g] != "" && !less(STEP[n], CUT_AT[tag, g])
}
function stands(n,  key, g, i, at, gone) { # an outcome shares the fate of what its main session had logged last by then
  key = KEY_OF[n]; g = "#" BY[key]
  if (!(key in STANDS) || !(key in BY)) return key in STANDS
  if (!((key, STEP[n]) in FATE)) {
    for (i = 1; i <= P; i++) if (WHO[i] == g && !less(STEP[n], STEP[i]) && (at == "" || !less(STEP[i], at))) {
      gone = is_void(i) || gone && STEP[i] == at; at = STEP[i]
    }
    FATE[key, STEP[n]] = !gone
  }
  return FATE[key, STEP[n]]
}
function outranks(a, b,  m, n) { # of two outcomes at one step: main session, order, attempt
  a = KEY_OF[a]; b = KEY_OF[b]; m = a in BY ? BY[a] : -1; n = b in BY ? BY[b] : -1
  if (m != n) return m > n
  m = ORDER[a] == "" ? "0" : ORDER[a]; n = ORDER[b] == "" ? "0" : ORDER[b]
  return m != n ? less(n, m) : NUMBER_OF[a] >= NUMBER_OF[b]
}
function beside(n,  m, a, b) { # of different jobs at one step the later time wins, then the name, outcomes last
  if (STEP[n] in WIN) {
    m = WIN[STEP[n]]; a = TIME[n] != ""; b = TIME[m] != ""
    if (a != b ? b : TIME[n] + 0 != TIME[m] + 0 ? TIME[n] + 0 < TIME[m] + 0 : ("x" WHO[n]) < ("x" WHO[m])) return
  }
  WIN[STEP[n]] = n
}
function sorted(n,  gap, i, j, t) { # S by Shell
  for (gap = int(n / 2); gap > 0; gap = int(gap / 2)) for (i = gap + 1; i <= n; i++) {
    t = S[i]
    for (j = i; j > gap && less(t, S[j - gap]); j -= gap) S[j] = S[j - gap]
    S[j] = t
  }
}
function counted(tag,  i, n, step, best, low, out) { # the points of one tag that count
  split("", WIN)
  for (i = 1; i <= POINTS[tag]; i++) {
    n = POINT[tag, i]
    if (WHO[n] == "~" && stands(n) && (!(STEP[n] in best) || outranks(n, best[STEP[n]]))) best[STEP[n]] = n
  }
  for (step in best) beside(best[step])
  for (i = 1; i <= POINTS[tag]; i++) if (WHO[POINT[tag, i]] !~ /^[~#]/) beside(POINT[tag, i])
  for (step in WIN) if (low == "" || less(step, low)) low = step # from here on main is replaced
  for (i = 1; i <= POINTS[tag]; i++) {
    n = POINT[tag, i]
    if (WHO[n] ~ /^#/ && (low == "" || less(STEP[n], low)) && !is_void(n)) WIN[STEP[n]] = n
  }
  n = 0
  for (step in WIN) S[++n] = step
  sorted(n)
  for (i = 1; i <= n; i++) out = out (i > 1 ? ", " : "") "[" S[i] ", " VALUE[WIN[S[i]]] "]"
  return out
}
function object(name) { printf "%s,\n  \"%s\": {", CLOSE, name; COMMA = ""; CLOSE = "\n  }" }
function member(name, v) { printf "%s\n    %s: %s", COMMA, quoted(name), v; COMMA = "," }
END {
  printf "{\n  \"writable\": %s", REFUSED ? "false" : "true"; object("jobs")
  for (k in HIGHEST) {
    n = HIGHEST[k]; s = (k, n) in STATUS ? STATUS[k, n] : "running"
    member(k, "{\"session\": " n ", \"status\": \"" s "\", \"reason\": " (s == "running" ? "null" : REASON[k, n]) "}")
  }
  object("points")
  for (i = 1; i <= TAG_COUNT; i++) if ((s = counted(TAGS[i])) != "") member(TAGS[i], "[" s "]")
  object("skipped")
  for (k in SKIPPED) member(k, "[" SKIPPED[k] "]")
  if (ENVIRON["UNIT"] == "") { print "\n  },\n  \"entries\": null,\n  \"finished\": null\n}"; exit }
  object("entries")
  for (k in PLACE) {
    s = PLACE[k] == "" ? "null" : "\"" PLACE[k] "\""; member(k, "{\"place\": " s ", \"outcomes\": {" OUTCOMES[k] "}}")
  }
  # 5.8: FINISHED is not there, or names a session ("-": none)
  s = ENVIRON["FINISHED"]; n = HIGHEST["main"]
  s = s != "" && (!n || s == n || s !~ /^[1-9][0-9]*$/ && STATUS["main", n] == "finished")
  printf "\n  },\n  \"finished\": %s\n}\n", s ? "true" : "false"
}'

# places: what stands where, as input for READ. Of two places the first one counts; an entry may move between two
# listings, so this is run twice (9).
places() {
  for place_f in "$u"/claimed/*/*/* "$u"/retry/*/* "$u"/queue/* "$u"/failed/* best/* "$u"/meta/*.json; do
    case $place_f in *[$control]*) continue ;; esac
    if [ -e "$place_f" ] || [ -L "$place_f" ]; then printf '\001place\t%s\n' "${place_f#"$u"/}"; fi
  done
}

# find_unit: u is where the queue stands, or "" where it is unreachable (2)
find_unit() {
  look main; record "jobs/main.$top.lock" unit_path='unit|path' unit_host='unit|host' unit_id='unit|id'
  u=. unit=null; [ -n "$unit_path" ] || return 0
  unit="{\"path\":$(js "$unit_path"),\"host\":$(js "$unit_host"),\"id\":$(js "$unit_id")}"
  record "$unit_path/unit.json" stated_id=id
  if [ "$stated_id" = "$unit_id" ]; then u=$unit_path; else u=; fi
}

# locks, logs and outcomes: as input for READ, in the order of 8.4
streams() { for stream_f in $2; do stream "$1" "$stream_f"; done; }
read_once() {
  streams lock 'jobs/*.lock'; streams end 'jobs/*.end'; streams log 'scalars/*.jsonl'; [ -z "$u" ] || places
  streams outcome 'evals/*.json'; [ -z "$u" ] || places
}
read_run() {
  cd "$1" && find_unit || return 1
  for look_again in 1 2 3; do # a lock that is new may void what was read (8.4)
    read_locks=$(echo jobs/*.lock) finished=
    f=$u/queue/FINISHED
    [ -z "$u" ] || ! listed "$f" || { record "$f" names=main_session && finished=${names:--}; }
    reading=$(read_once | FINISHED=$finished UNIT=$u awk "$JSON$FILES$READ")
    [ "$read_locks" != "$(echo jobs/*.lock)" ] || break
  done
  printf '%s\n' "$reading"
}

# ---- the clock and files (4.5, 7, 8.1) -------------------------------------------------------------------------------

now() { read -r up_s up_rest </proc/uptime && up=$((${up_s%.*} * 100 + 1${up_s#*.} - 100)); } # in 1/100 s, with suspend
seconds() { printf '%d.%02d' $(($1 / 100)) $(($1 % 100)); }
hundredths() { SECONDS_=$1 awk 'BEGIN { t = ENVIRON["SECONDS_"] * 100; printf "%d", (t < 1e9 ? t : 1e9) }'; }
utc() { date -u +%Y-%m-%dT%H:%M:%SZ; }
random() { od -An -N8 -tx1 /dev/urandom | tr -d ' \n'; }
is_job() { case $1 in '' | [!a-z0-9]* | *[!a-z0-9_-]*) return 1 ;; *) [ ${#1} -le 48 ] ;; esac; }
number() { case $1 in '' | 0* | *[!0-9]*) return 1 ;; *) [ ${#1} -le 18 ] ;; esac; }
is_step() { case ${1#-} in '' | 0?* | *[!0-9]*) return 1 ;; *) [ "$1" -eq "$1" ] 2>/dev/null ;; esac; } # 64 bits
is_entry() { # 3; that it is UTF-8 is for who reads names
  case $1 in '' | .* | *.tmp | FINISHED | */* | *[$control]*) return 1 ;; *) [ ${#1} -le 200 ] ;; esac
}
hidden() { seq=$((seq + 1)) tmp=$1/.tmp-$job.$n-$token$seq; } # FOLDER: a name that nobody else uses (3)
fresh() { # FOLDER: have what is remembered of it dropped, by a change (8.1); a reader changes nothing
  [ -z "$job" ] || { true >"$1/.tmp-$job.$n-${token}0" && rm -f "$1/.tmp-$job.$n-${token}0"; } 2>/dev/null
}
listed() { # PATH: whether a fresh listing shows it; nothing else proves absence (8.1)
  fresh "${1%/*}"
  for listed_f in "${1%/*}"/*; do [ "$listed_f" != "$1" ] || return 0; done
  return 1
}
put() { # FILE TEXT: publish FILE unless it exists (7). 0: it stands, 1: another one does, 2: neither
  put_rc=2; hidden "${1%/*}"
  if { printf '%s\n' "$2" >"$tmp" && sync "$tmp"; } 2>/dev/null; then
    # link and not ln, which would link into a folder; two names: it happened
    if link "$tmp" "$1" 2>/dev/null || [ -n "$(find "$tmp" -links +1)" ]; then put_rc=0
    elif listed "$1"; then put_rc=1
    elif (set -C && true >"$1") 2>/dev/null; then # links are refused here
      if cat "$tmp" >"$1" && sync "$1"; then put_rc=0; else rm -f "$1"; fi
    elif listed "$1"; then put_rc=1; fi
  fi
  rm -f "$tmp"; [ $put_rc -ne 0 ] || sync "${1%/*}"; return $put_rc
}
# folder PATH: make a folder in one that exists; the run or the unit may be gone, and is never made anew (4.1)
folder() { [ -d "$1" ] || { mkdir "$1" && chmod g+s "$1"; } 2>/dev/null || [ -d "$1" ]; }
# move FROM TO: one rename, as protected work; after an error a fresh listing decides (4.5, 7)
move() { protected && { mv -fT "$1" "$2" 2>/dev/null || listed "$2"; }; }
remove() { # PATH: rename, then remove (7); no rename reaches a unit elsewhere from best/
  hidden "$u/trash"
  case $1 in best/*) [ "$u" = . ] || hidden best ;; esac
  move "$1" "$tmp"; rm -rf "$tmp"
}

# ---- sessions (4) ----------------------------------------------------------------------------------------------------

process() { # PID: its state and start ticks; false where it has no place in /proc. A name may hold spaces and ")"
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  process_state=$1 process_ticks=${20}
}
identify() { # who this process is (6.1); self_pid: whether /proc is that of its own pid namespace
  host=$(uname -n) boot=$(cat /proc/sys/kernel/random/boot_id) pidns=$(readlink /proc/self/ns/pid) process_ticks=null
  pidns=${pidns#*[} pidns=${pidns%]}; read -r self_pid self_rest </proc/self/stat; process $$
  ticks=$process_ticks
  holder="{\"host\":$(js "$host"),\"boot\":\"$boot\",\"pidns\":\"$pidns\",\"pid\":$$,\"ticks\":$ticks}"
}
is_dead() { # whether the holder l_* is proved dead on this host; anything else is unknown, and unknown is alive (4.4)
  [ "$l_host.$l_boot.$l_pidns" = "$host.$boot.$pidns" ] && [ -n "$boot" ] && [ -n "$pidns" ] || return 1
  number "$l_pid" || return 1
  case $(kill -0 "$l_pid" 2>&1) in *'o such process'*) return 0 ;; esac # ESRCH; EPERM would be alive
  [ "$self_pid" = $$ ] && process "$l_pid" || return 1
  # own pid and ticks: this very process, before it became this program
  if number "$l_ticks" && { [ "$process_ticks" != "$l_ticks" ] || [ "$l_pid" = $$ ]; }; then return 0; fi
  set -- "$process_state" "/proc/$l_pid/task"/*
  [ "$1" = Z ] && [ $# -le 2 ] # a zombie with another thread lives
}

look() { # JOB: a fresh listing of jobs/: the highest lock (0: none), whether it is ended, its beats and taken names
  fresh jobs; top=0 ended='' marks=''
  for look_f in "jobs/$1".*.lock; do
    look_k=${look_f#"jobs/$1."} look_k=${look_k%.lock}
    if number "$look_k" && [ "$look_k" -gt "$top" ]; then top=$look_k; fi
  done
  for look_f in "jobs/$1.$top".*; do
    case $look_f in
      "jobs/$1.$top.end") ended=1 ;;
      *[!a-z0-9._/-]*) ;; # no name of the protocol
      *.beat.* | *.taken.*) marks="$marks $look_f" ;;
    esac
  done
}
put_end() { # JOB N TOKEN STATUS REASON MEMBER (6.3)
  put "jobs/$1.$2.end" "{\"protocol\":\"1.0\",\"job\":\"$1\",\"session\":$2,\"token\":\"$3\",\"status\":\"$4\",\
\"reason\":$5,\"ended\":\"$(utc)\",$6}"
}
close_other() { # JOB REASON: close session top, that was judged, by the very beat that was watched (4.4)
  taken=jobs/$1.$top.$l_token.taken.${mark##*.}
  case $mark in *.beat.*) move "$mark" "$taken" || return 1 ;; esac # the holder has moved on
  put_end "$1" "$top" '' crashed "\"$2\"" "\"found_by\":$holder"; [ $? -ne 2 ] || return 1
  rm -f "$taken" "$window"; verdict=closed
}
# judge JOB: one look at its highest session (4.4), which is closed if it may be. verdict: closed (or there is none),
# alive (one beat was seen), or waiting. The window stands in a private file: "<mark> <first> <last look> <looks>".
judge() {
  now; before=$up; look "$1"; now; verdict=closed mark=none window=$private/watch.$1.$top
  [ "$top" -ne 0 ] && [ -z "$ended" ] || return 0
  verdict=waiting
  record "jobs/$1.$top.lock" l_major=protocol l_token=token l_T=timeout l_host='holder|host' l_boot='holder|boot' l_pid='holder|pid' \
    l_pidns='holder|pidns' l_ticks='holder|ticks'
  case $l_major in '' | 1 | 1.*) ;; *) return 0 ;; esac # whoever does not know that major closes nothing of it (10)
  l_T=$(hundredths "$l_T")
  [ "$l_T" -gt 0 ] || l_T=$cT # a lock that cannot be read yet
  for mark_f in $marks; do case $mark_f in "jobs/$1.$top.$l_token."*) mark=$mark_f ;; esac; done
  case $mark in *.taken.*) close_other "$1" expired && return ;; esac # a verdict that somebody has reached
  if is_dead; then close_other "$1" 'proved dead'; return; fi
  read -r w_mark w_first w_last w_looks 2>/dev/null <"$window" || w_mark=
  if [ "$mark" = "$w_mark" ] && [ $((up - before)) -le $((l_T / 6)) ] && [ $((before - w_last)) -le $((l_T / 3)) ]; then
    echo "$mark $w_first $up $((w_looks + 1))" >"$window"
    [ $((before - w_first)) -lt "$l_T" ] || [ "$w_looks" -lt 2 ] || close_other "$1" expired
    return 0
  fi
  [ -z "$w_mark" ] || [ "$mark" = "$w_mark" ] || [ "$mark" = none ] || verdict=alive
  echo "$mark $up $up 1" >"$window" # another beat, or this observer was cut off: the window starts again
}

# fence JOB N: how many bytes of each log of session N count: its complete lines up to the first NUL, and never less
# than its end says (4.7). Where logs have lost lines a data.parquet may have more; this client cannot read it.
fence() {
  for fence_f in "jobs/$1.$2.end" "scalars/$1.$2.jsonl" "system/$1/$2.jsonl" "media/$1.$2.jsonl" "tables/$1.$2.jsonl" \
    "artifacts/$1.$2.jsonl"; do
    [ -z "$continues" ] || [ ! -f "$fence_f" ] || sync "$fence_f"
    case $fence_f in *.end) stream end "$fence_f" ;; *) stream log "$fence_f" ;; esac
  done | awk "$JSON$FILES"'
    EVENT == "opened" { n = 0 }
    EVENT == "line" { n = SIZE }
    EVENT == "closed" && GOOD { p = find("sizes"); for (i = 1; i <= N[p]; i++) LEAST[x = KEY[p, i]] = V[NODE[p, x]] }
    EVENT == "closed" && KIND == "log" {
      if (LEAST[NAME] + 0 > n) n = LEAST[NAME] + 0
      if (n) { printf "%s\"%s\":%.0f", COMMA, NAME, n; COMMA = "," }
    }'
}
open_next() { # CONTINUES: open session top + 1 (4.1): the own beat first, then the lock. 1: another was faster
  n=$((top + 1)) fences=null continues=$1 token=$(random)
  [ "$top" -eq 0 ] || fences="{$(fence "$job" "$top")}"
  [ "$job" = main ] || unit=null
  now; opened_at=$up; true >"jobs/$job.$n.$token.beat.0" || return 2
  put "jobs/$job.$n.lock" "{\"protocol\":\"1.0\",\"job\":\"$job\",\"session\":$n,\"token\":\"$token\",\"timeout\":$T,\
\"opened\":\"$(utc)\",\"holder\":$holder,\"continues\":${1:-false},\"fence\":$fences,\
\"project\":$(js "$(basename "${run%/*}")"),\"run\":$(js "${run##*/}"),\"unit\":$unit}"
  open_rc=$?
  [ $open_rc -eq 0 ] || { rm -f "jobs/$job.$n.$token.beat.0"; return $open_rc; }
  rm -f "jobs/$job.$top".*.beat.* "jobs/$job.$top".*.taken.* # of a closed session: anyone's (4.4)
  echo "open 0 $opened_at" >"$private/state"; true >"$private/names.$n"
  # exec, since a redirection of the function alone would keep a copy of what whoever reads the answers waits for
  (exec >/dev/null 2>&1 3<&- && beat_on) &
  helper=$!
}

# beat_on: the helper that beats (4.2): every T/6 from beat 0 on, for as long as the main shell runs. It says in a
# private file "open|closed|gone <c> <start of the last good beat>", and wakes the main shell where it was closed.
beat_on() {
  trap - EXIT USR1; trap 'kill $nap; exit' TERM
  c=0 good=$opened_at first='' looks=0 nap=''
  while :; do
    sleep "$(seconds $((cT / 6)))" &
    nap=$!; wait $nap; nap=
    # Whoever beats for another process looks first whether that lives. One that is stopped gets no beat either.
    process $$ && [ "$process_ticks" = "$ticks" ] || process_state=X
    case $process_state in Z | X) rm -rf "$private"; exit ;; T | t) continue ;; esac
    now && first=${first:-$up} looks=$((looks + 1)) state=open
    if cd "$run" && mv -f "jobs/$job.$n.$token.beat.$c" "jobs/$job.$n.$token.beat.$((c + 1))"; then
      c=$((c + 1)) good=$up first=''
      # about once in T: an end put by hand leaves the beat where it is
      [ $((looks % 6)) -ne 0 ] || ! listed "jobs/$job.$n.end" || state=closed
    else settle_beat; fi
    echo "$state $c $good" >"$private/state.new" && mv -f "$private/state.new" "$private/state" || exit
    while [ $state = closed ] && kill -USR1 $$; do sleep "$(seconds $((cT / 6)))"; done # until it has ended this helper
    [ $state != gone ] || exit
  done
}
settle_beat() { # after an error the name that stands decides (4.2)
  cd "$run" || return 0 # perhaps for a moment: protected work ends by itself
  look "$job"
  case "$marks " in
    # it happened, and counts from the first one tried
    *" jobs/$job.$n.$token.beat.$((c + 1)) "*) c=$((c + 1)) good=$first first=''; return ;;
    *" jobs/$job.$n.$token.beat.$c "*) return ;; # it did not: try again
    *" jobs/$job.$n.$token.taken."*) state=closed ;;
  esac
  if [ "$top" -lt "$n" ]; then state=gone # not the folder that was opened (4.9)
  elif [ "$top" -gt "$n" ] || [ -n "$ended" ] || [ $((up - good)) -gt "$cT" ]; then state=closed; fi
}
# state: what the helper said last: state, c, good; and the time
state() { until read -r state c good rest <"$private/state"; do :; done 2>/dev/null; now; }
protected() { # whether protected work may begin: within 2T/3 of the start of the last good beat (4.5); waits for a beat
  [ -n "$helper" ] || return 0 # it holds nothing yet that could be taken away
  now && asked=$up
  while state && [ "$state" = open ] && [ $((up - asked)) -le "$cT" ]; do
    [ $((up - good)) -gt $((cT * 2 / 3)) ] || return 0; sleep 0.1
  done
  return 1
}
stop_beating() { [ -z "$helper" ] || { kill -TERM "$helper"; wait "$helper"; } 2>/dev/null; helper=; }

# holding: whether this process still holds its job, as it was or with a session that continues (4.6).
# 1: fenced, 2: the folder is not the one that was opened (4.2)
holding() {
  cd "$run" 2>/dev/null || return 2
  while :; do
    look "$job"; state
    if [ "$top" -gt "$n" ]; then stop_beating; fenced=1; return 1; fi
    if [ "$top" -lt "$n" ] || [ "$state" = gone ]; then return 2; fi
    if [ -z "$ended" ] && [ "$state" = open ]; then return 0; fi
    stop_beating # closed by a false verdict: put what is missing of it, and go on as the next session
    [ -n "$ended" ] || put_end "$job" "$n" '' crashed '"expired"' '"found_by":null'
    rm -f "jobs/$job.$n.$token".beat.* "jobs/$job.$n.$token".taken.*; old_n=$n; open_next true
    case $? in 1) n=$old_n; continue ;; 2) n=$old_n; return 2 ;; esac
    [ -z "$wrote_finished" ] || write_finished; adopt
  done
}

# ---- the trainer (5.1, 5.8) ------------------------------------------------------------------------------------------

split_name() { # NAME: base, use and suffix of an entry name: epoch_012~2.pt (3)
  use=1 suffix=${1##*.}
  case $suffix in "$1" | '' | [!A-Za-z]* | *[!A-Za-z0-9]* | ?????????????????*) suffix= ;; *) suffix=.$suffix ;; esac
  base=${1%"$suffix"}
  case $base in ?*~*) ;; *) return ;; esac
  if number "${base##*~}" && [ "${base##*~}" -ge 2 ]; then use=${base##*~} base=${base%~*}; fi
}
describe() { # PATH: its files, a line each (6.4): size, mtime in ns, sample, name; "-" for what the tools cannot say
  if [ -d "$1" ]; then (cd "$1" && find . -type f) | sort; else echo; fi | while IFS= read -r name; do
    file=$1${name:+/$name} sample=-
    facts=$(stat -L -c '%s %Y.%y' "$file") || continue # 3 1764456878.2026-11-29 22:54:38.120000000 +0000
    size=${facts%% *} mtime=${facts#* } mtime=${mtime%%.*}${facts##*.} mtime=${mtime%% *}
    case $mtime in *[!0-9]* | 0*) mtime=- ;; esac
    [ -z "$b2sum" ] || sample=$(if [ "$size" -le 12288 ]; then cat "$file"; else
      head -c 4096 "$file"; tail -c 4096 "$file"; tail -c "+$((size / 2 + 1))" "$file" | head -c 4096
    fi | b2sum -l 128)
    printf '%s %s %s %s\n' "$size" "$mtime" "${sample%% *}" "${name#./}"
  done
}
DESCRIBED='KIND == "" { name = $0; sub(/^[^ ]* [^ ]* [^ ]* /, "", name) }'
files_of() { # PATH: kind and files of what is handed over, as keys of a meta
  if [ -d "$1" ]; then printf '"kind":"folder"'; else printf '"kind":"file"'; fi
  [ -z "$(find "$1" -mindepth 1 -name "*[$control]*")" ] || return 0 # a name that a line cannot say
  describe "$1" | awk "$JSON$DESCRIBED"'
    { list = list (NR > 1 ? "," : "") "{\"name\":" quoted(name) ",\"size\":" $1
      list = list ($2 != "-" ? ",\"mtime_ns\":" $2 : "") ($3 != "-" ? ",\"sample\":\"" $3 "\"" : "") "}" }
    END { printf ",\"files\":[%s]", list }'
}
unchanged() { # PATH ENTRY: whether it is as its meta says (5.1); a key that is absent is not compared
  { describe "$1"; stream record - "$u/meta/$2.json"; } | awk "$JSON$FILES$DESCRIBED"'
    KIND == "" { SIZE_OF[name] = $1; MTIME[name] = $2; SAMPLE[name] = $3 }
    function differs(have, key) { key = find(key, id); return key && V[key] != "" && have != "-" && V[key] != have }
    EVENT == "closed" && GOOD && (files = find("files")) {
      for (i = 1; i <= N[files]; i++) {
        id = NODE[files, i]; name = V[find("name", id)]
        if (name ~ /[\001-\037]|\300/) continue # as a line can say
        if (!(name in SIZE_OF) || differs(SIZE_OF[name], "size")) changed = 1
        if (differs(MTIME[name], "mtime_ns") || differs(SAMPLE[name], "sample")) changed = 1
      }
    }
    END { exit changed }'
}
now_ns() { # for orders alone; two of one second must differ, where the clock has no smaller parts
  seq=$((seq + 1)) ns=$(date +%s%N)
  case $ns in *[!0-9]*) ns=$(date +%s)$(printf '%09d' $seq) ;; esac
}
reserve() { # NAME FIRST FACTS: reserve the first use of NAME from FIRST on that is free; sets entry and use (5.1, 5.2)
  split_name "$1"; use=$2
  while entry=$base~$use$suffix; do
    [ "$use" -gt 1 ] || entry=$base$suffix
    is_entry "$entry" || return 2
    put "$u/meta/$entry.json" "{\"protocol\":\"1.0\",\"entry\":$(js "$entry"),$3,\"handed_over\":\"$(utc)\"}"
    case $? in 0) return 0 ;; 1) use=$((use + 1)) ;; *) return 2 ;; esac
  done
}
stage() { # PATH TO: link it file by file, links followed; a copy of what cannot be linked (5.1)
  if [ ! -d "$1" ]; then # no pipe, no device, no link that leads nowhere
    [ -f "$1" ] && { link "$(readlink -f "$1")" "$2" 2>/dev/null || cp -p "$1" "$2"; }; return
  fi
  mkdir "$2" || return 1
  for stage_f in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    { [ ! -e "$stage_f" ] && [ ! -L "$stage_f" ]; } || (stage "$stage_f" "$2/${stage_f##*/}") || return 1
  done
}
publish() { # what is staged under the name that was reserved (5.1); 1: another one has it, or it failed
  to=$u/queue/$entry
  # a link replaces nothing; a folder, and what cannot be linked, is renamed
  ! listed "$to" && { link "$staged" "$to" 2>/dev/null || [ "$staged" -ef "$to" ] ||
    { ! listed "$to" && mv -fT "$staged" "$to" 2>/dev/null; } || { [ ! -e "$staged" ] && listed "$to"; }; }
}
enqueue() { # PATH NAME STEP
  [ -e "$1" ] && is_step "$3" || { answer error 'no such checkpoint, or no step'; return; }
  hidden "$u/queue" && staged=$tmp enqueued='' main_n=$n; [ "$job" = main ] || { look main && main_n=$top; }
  if stage "${1%/}" "$staged" 2>/dev/null && find "$staged" -exec sync {} +; then
    now_ns
    enqueue_facts="$(files_of "$staged"),\"step\":$3,\"main_session\":$main_n,\"order\":$ns,\"source\":$(js "$1")"
    split_name "$2"
    while reserve "$2" "$use" "$enqueue_facts"; do
      if publish; then sync "$u/queue"; enqueued=$entry; break; fi
      rm -f "$u/meta/$entry.json" # claimants would compare a plain writer's file with it
      listed "$u/queue/$entry" || break; use=$((use + 1))
    done
  fi
  rm -rf "$staged"
  if [ -n "$enqueued" ]; then answer enqueued "$enqueued"; else answer error "$1 cannot be handed over"; fi
}
write_finished() { # replace FINISHED (5.8, 7); what was handed over is durable
  hidden "$u/queue"
  printf '{"protocol":"1.0","main_session":%s,"token":"%s","written":"%s"}\n' "$n" "$token" "$(utc)" >"$tmp" &&
    sync "$tmp" && mv -fT "$tmp" "$u/queue/FINISHED" && sync "$u/queue" && wrote_finished=1
}
value() { # TEXT: a JSON number as it is, or a word in quotes (6)
  case $1 in
    NaN | Infinity | -Infinity) printf '"%s"' "$1" ;;
    *) printf '%s\n' "$1" | grep -Ex -e '-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?' ;;
  esac
}
pairs() { # TAG VALUE...: as members of an object, each with a comma before it
  while [ $# -ge 2 ]; do
    case $1 in step | time | entry) return 1 ;; esac
    pairs_value=$(value "$2") || return 1; printf ',%s:%s' "$(js "$1")" "$pairs_value"; shift 2
  done
  [ $# -eq 0 ]
}
append() { printf '%s\n' "$1" >>"scalars/$job.$n.jsonl"; } # LINE: one write a line, to the own log alone (7)
log_line() { # STEP TIME [TAG VALUE]...
  line_start="{\"step\":$1,\"time\":$2"
  is_step "$1" && value "$2" >/dev/null && shift 2 && line_pairs=$(pairs "$@") && append "$line_start$line_pairs}"
}

# ---- the evaluator (5.2 to 5.9) --------------------------------------------------------------------------------------
# A claim: ce, ck the entry and the attempt, cj, cs the session that holds it.

claim_path() { printf '%s/claimed/%s.%s/%s/%s' "$u" "$cj" "$cs" "$ck" "$ce"; }
step_of() { # NAME: the step in an entry's name (5.9)
  split_name "$1"
  for form in 'step[=_-]?[0-9]+' '(epoch[=_-]?|checkpoint-)[0-9]+' '[0-9]+'; do
    step=$(printf '%s\n' "$base" | grep -oiE -e "$form" | sed -n '$s/.*[^0-9]//; $s/^0*\(.\)/\1/; $p')
    [ -z "$step" ] || { echo "$step"; return; }
  done
}
facts_of() { # ENTRY: step, main_session and order of its meta, the step else of its name; empty: nobody says (5.9)
  record "$u/meta/$1.json" e_step=step e_main=main_session e_order=order
  is_step "$e_step" || e_step=$(step_of "$1")
}
facts() { # what is known of them, as keys of a record
  for fact in "step:$e_step" "main_session:$e_main" "order:$e_order"; do
    ! is_step "${fact#*:}" || printf '"%s":%s,' "${fact%:*}" "${fact#*:}"
  done
}
next_use() { # PATH: reserve the next use of the claim's name for the file at PATH (5.2)
  facts_of "$ce"; now_ns
  # what the meta says goes along where it is about this file
  if ! listed "$u/meta/$ce.json" || ! unchanged "$1" "$ce"; then e_step=$(step_of "$ce") e_main='' e_order=$ns; fi
  split_name "$ce"; reserve "$ce" $((use + 1)) "$(files_of "$1"),$(facts)\"source\":$(js "$ce")"
}
next_name() { # give the claim the next use of its name, since another file has this one (5.2)
  from=$(claim_path); [ -e "$from" ] && next_use "$from" && move "$from" "${from%/*}/$entry" && ce=$entry
}
# settle STATE FIELDS: put the outcome of the claim; sets stands, the state of the one that stands, and ours where that
# is this one (5.3). One that names another claim is about another file (5.2). 1: the claim is gone, 2: it is not put.
settle() {
  ours='' settle_token=; [ "$cj.$cs" != "$job.$n" ] || settle_token=$token
  while :; do
    put "evals/$ce.$ck.json" "{\"protocol\":\"1.0\",\"entry\":$(js "$ce"),\"attempt\":$ck,\"state\":\"$1\",$2\
\"ended\":\"$(utc)\",\"job\":\"$cj\",\"session\":$cs,\"token\":\"$settle_token\",\"by\":$holder}"
    case $? in 0) stands=$1 ours=1; return 0 ;; 2) return 2 ;; esac
    record "evals/$ce.$ck.json" stands=state owner_job=job owner_session=session
    [ "$owner_job.$owner_session" != "$cj.$cs" ] || return 0
    # 6: without its newline it is not there yet; where it is whole, it is another claim's or nobody's
    [ "$(tail -c 1 "evals/$ce.$ck.json" | od -An -tx1 | tr -d ' ')" = 0a ] || return 2
    next_name || return 1
  done
}
bring() { # move the claim as the outcome that stands says, whoever put it (5.3); sets place
  from=$(claim_path) place=retry limit=0 k=0
  case $stands in
    skipped) place=trash ;;
    done) if listed ./best.json; then place=best; else place=trash; fi ;;
    failed) limit=3 ;;
    lost) limit=10 ;;
  esac
  while [ $limit -gt 0 ] && [ $((k += 1)) -le "$ck" ]; do
    record "evals/$ce.$k.json" k_state=state
    [ "$k_state" != "$stands" ] || [ $((limit -= 1)) -gt 0 ] || place=failed
  done
  case $place in
    trash) remove "$from" ;;
    failed) move "$from" "$u/failed/$ce" ;;
    retry) folder "$u/retry/$((ck + 1))" && move "$from" "$u/retry/$((ck + 1))/$ce" ;;
    best) keep ;;
  esac
}
keep() { # into best/, as a copy where the trainer has the file too or the unit stands elsewhere (5.6)
  if [ "$u" = . ] && [ -z "$(find "$from" -type f -links +1)" ]; then move "$from" "best/$ce" && sync best; return; fi
  hidden best && copy=$tmp
  listed "best/$ce" || [ -n "$(surplus "$ce" | grep -Fx -e "$ce")" ] ||
    { cp -RPp "$from" "$copy" && find "$copy" -exec sync {} + && move "$copy" "best/$ce" && sync best; } ||
    { rm -rf "$copy"; return 1; }
  remove "$from"
}
surplus() { # [ENTRY]: what stands in best/ (and ENTRY, as if it did) with at least keep better ones there (5.7)
  record ./best.json mode=mode keep=keep rule_tag=tag
  number "${keep:-1}" || return 0 # 0: all are kept
  for surplus_f in best/* ${1:+"best/$1"}; do
    for surplus_e in "evals/${surplus_f#best/}".*.json; do
      surplus_k=${surplus_e#"evals/${surplus_f#best/}."}
      ! number "${surplus_k%.json}" || stream record "${surplus_f#best/}" "$surplus_e"
    done
  done | MODE=$mode RULE=$rule_tag KEEP=${keep:-1} awk "$JSON$FILES"'
    EVENT == "closed" && GOOD && V[find("state")] == "done" && (id = find("scores")) {
      if (!(id = find(ENVIRON["RULE"], id)) || (v = scalar(id)) == "") next
      SIGN[NAME] = v ~ /NaN/ ? -2 : v ~ /-I/ ? -1 : v ~ /I/ ? 1 : 0; SCORE[NAME] = SIGN[NAME] ? 0 : v + 0
      AT_STEP[NAME] = whole(find("step"))
      if (ENVIRON["MODE"] == "min" && SIGN[NAME] != -2) { SIGN[NAME] = -SIGN[NAME]; SCORE[NAME] = -SCORE[NAME] }
    }
    function better(a, b) {
      if (SIGN[a] != SIGN[b]) return SIGN[a] > SIGN[b]
      if (SCORE[a] != SCORE[b]) return SCORE[a] > SCORE[b]
      if (AT_STEP[a] != AT_STEP[b]) return AT_STEP[b] == "" || AT_STEP[a] != "" && less(AT_STEP[a], AT_STEP[b])
      return ("x" a) < ("x" b)
    }
    END { for (a in SIGN) { n = 0; for (b in SIGN) n += better(b, a); if (n >= ENVIRON["KEEP"] + 0) print a } }'
}
# prune: take from best/ what is not among the best (5.7)
prune() { ! listed ./best.json || surplus | while IFS= read -r prune_e; do remove "best/$prune_e"; done; }

adopt() { # the claim of the session that this one continues: returned, then straight into the own claim of k + 1 (5.4)
  [ -n "$ce" ] || return 0
  if settle returned "\"reason\":\"adopted\",$(facts)" && [ "$stands" = returned ]; then
    folder "$u/claimed/$job.$n" && folder "$u/claimed/$job.$n/$((ck + 1))" &&
      move "$(claim_path)" "$u/claimed/$job.$n/$((ck + 1))/$ce" && cs=$n ck=$((ck + 1)) && return
  elif [ -e "$(claim_path)" ]; then bring; fi
  ce= # somebody recovered it
}
recover() { # bring home the claims of closed sessions (5.5), and empty the trash
  for recover_f in "$u"/claimed/*; do
    owner=${recover_f##*/} cj=${recover_f##*/} cj=${cj%.*} cs=${recover_f##*.}
    is_job "$cj" && number "$cs" && [ "$owner" != "$job.$n" ] && listed "jobs/$owner.end" || continue
    for recover_e in "$recover_f"/*/*; do
      ce=${recover_e##*/} ck=${recover_e%/*} ck=${ck##*/}
      number "$ck" && is_entry "$ce" && [ -e "$recover_e" ] || continue; facts_of "$ce"
      settle lost "\"reason\":null,$(facts)" && bring
    done
    rmdir "$recover_f"/* "$recover_f" 2>/dev/null
  done
  ce=; rm -rf "$u"/trash/* "$u"/trash/.[!.]*
}
waiting() { # what waits, a path a line: what was never tried first. Refused names are left (3)
  fresh "$u/queue"
  for waiting_f in "$u"/queue/* "$u"/retry/*/*; do
    ! is_entry "${waiting_f##*/}" || { [ ! -e "$waiting_f" ] && [ ! -L "$waiting_f" ]; } || printf '%s\n' "$waiting_f"
  done | awk "$JSON"'is_utf8($0)'
}
claim() { # PATH: one rename into the own claim (5.2); 1: another was faster
  ce=${1##*/} ck=1 cj=$job cs=$n entry=${1##*/}
  case ${1#"$u/"} in retry/*) ck=${1%/*} ck=${ck##*/} ;; esac
  # a second file of one name in one session gets its next name in the very rename
  if [ "$ck" -eq 1 ] && grep -qFx -e "$ce" "$private/names.$n"; then next_use "$1" || { ce=; return 1; }; fi
  [ "$ck" -gt 1 ] || printf '%s\n' "$ce" "$entry" >>"$private/names.$n"
  if folder "$u/claimed/$job.$n" && folder "$u/claimed/$job.$n/$ck" && move "$1" "$u/claimed/$job.$n/$ck/$entry"; then
    ce=$entry; [ "$ck" -eq 1 ] && listed "evals/$ce.1.json" || return 0
    record "evals/$ce.1.json" owner_job=job owner_session=session
    [ "$owner_job.$owner_session" != "$job.$n" ] || return 0
    next_name && return # an earlier file is X (5.2)
  fi
  ce=; return 1
}
take() { # one look
  [ -z "$ce" ] || { answer error "$ce is claimed"; return; }; others=
  for take_f in jobs/*.lock; do # close what is dead or expired (4.4), once a job
    take_j=${take_f#jobs/} take_j=${take_j%%.*}
    case "$others $job " in *" $take_j "*) continue ;; esac
    ! is_job "$take_j" || { others="$others $take_j" && judge "$take_j"; }
  done
  recover; waiting >"$private/waiting"
  while IFS= read -r take_path <&4; do
    claim "$take_path" || continue; facts_of "$ce"; [ -n "$e_order" ] || claimants_facts
    if unchanged "$(claim_path)" "$ce"; then
      answer taken "$ce" "$ck" "$(cd "$u" && pwd -P)/claimed/$cj.$cs/$ck/$ce"; return
    fi
    settle failed "\"reason\":\"changed\",$(facts)" && bring; ce=
  done 4<"$private/waiting"
  if over && over; then answer over; else answer none; fi # twice: an entry moves between two listings
}
claimants_facts() { # what neither the meta nor the name tells, the claimant states, main's last step too (5.9)
  now_ns; look main; e_order=$ns e_main=${e_main:-$top}
  [ -n "$e_step" ] || e_step=$(stream log "scalars/main.$top.jsonl" | awk "$JSON$FILES"'
    EVENT == "line" { last = $0; BARE = 1 }
    END { if (parse(last)) print whole(find("step")) }')
}
over() { # whether an evaluator may end (5.8)
  [ -z "$(waiting)" ] || return 1
  for over_j in $others; do # a side job that hands over keeps evaluators waiting
    look "$over_j"; [ "$over_j" != main ] && [ -z "$ended" ] || continue
    record "jobs/$over_j.$top.lock" hands_over=hands_over; [ "$hands_over" != true ] || return 1
  done
  look main; record "jobs/main.$top.end" status=status
  if [ "$status" = failed ] || [ "$status" = crashed ]; then # it may come back: linger 10 minutes, and at least 4T
    [ -f "$private/linger.$top" ] || { now && echo "$up" >"$private/linger.$top"; }
    read -r since <"$private/linger.$top" && now
    if [ $((up - since)) -ge 60000 ] && [ $((up - since)) -ge $((4 * cT)) ]; then return 0; fi
  fi
  for over_f in "$u"/claimed/*/*/*; do [ ! -e "$over_f" ] || return 1; done
  [ "$status" != finished ] || return 0
  listed "$u/queue/FINISHED" && record "$u/queue/FINISHED" finished=main_session && [ "$finished" = "$top" ]
}
outcome() { # STATE [REASON | TAG VALUE...]
  [ -n "$ce" ] || { answer error 'nothing is claimed'; return; }
  o_state=$1 o_step=$e_step o_time=$(date +%s) scores='' o_reason=null; shift
  case $o_state in
    done) scores=$(pairs "$@") || { answer error 'a score is no number'; return; } ;;
    failed | skipped) o_reason=$(js "${1-}") ;;
    returned) ;;
    *) answer error "no such outcome: $o_state"; return ;;
  esac
  # 5.1: again before done. A claim that is gone is another matter: the outcome that stands decides.
  [ "$o_state" != done ] || [ ! -e "$(claim_path)" ] || unchanged "$(claim_path)" "$ce" ||
    o_state=failed o_reason='"changed"' scores=
  settle "$o_state" "\"reason\":$o_reason,$(facts)\"time\":$o_time,\"scores\":{${scores#,}},"
  case $? in 1) ce=; answer error 'the claim is gone'; return ;; 2) answer error 'it cannot be written'; return ;; esac
  bring
  if [ -n "$ours" ] && [ "$stands" = done ]; then # 5.9: after it stands, and by none but the one whose outcome it is
    [ -z "$scores" ] || ! is_step "$o_step" || # nobody knows its step
      append "{\"step\":$o_step,\"time\":$o_time$scores,\"entry\":$(js "$ce.$ck")}"
    prune
  fi
  ce=; answer moved "$place"
}

# ---- the commands (docs/clients.md) ----------------------------------------------------------------------------------

answer() { (IFS=$tab; printf '%s\n' "$*"); }
open_job() { # JOB T (4.1, 4.4)
  is_job "$1" && value "$2" >/dev/null && T=$2 cT=$(hundredths "$2") && [ "$cT" -gt 0 ] ||
    { answer error 'no job or no timeout'; return; }
  if [ "$1" = main ] && [ ! -d "$run/jobs" ]; then
    mkdir -p "$run" && cd "$run" || { answer error "$run cannot be made"; return; }
    for open_f in jobs scalars evals best queue meta claimed retry failed trash; do folder $open_f; done
  fi
  cd "$run" 2>/dev/null || { answer refused 'there is no such run'; return; }
  find_unit
  [ "$1" = main ] || [ "$top" -gt 0 ] || { answer refused 'the run has no main job'; return; }
  case $(streams lock 'jobs/*.lock' | FINISHED='' UNIT='' awk "$JSON$FILES$READ") in # 10
    *'"writable": false'*) answer refused 'the protocol of this run is not 1'; return ;;
  esac
  job=$1 n=0
  while judge "$job"; [ "$verdict" != alive ]; do
    if [ "$verdict" = closed ] && look "$job" && { [ "$top" -eq 0 ] || [ -n "$ended" ]; }; then
      open_next ''
      case $? in 0) break ;; 2) answer error 'the lock cannot be written'; return ;; esac
    fi
    sleep "$(seconds $((cT / 8 > 50 ? 50 : cT / 8)))"
  done
  [ "$verdict" != alive ] || { answer held "$l_host" "$l_pid"; return; }
  if [ "$job" != main ]; then prune # 5.7: at the start, and at the end
  elif [ -n "$u" ]; then rm -f "$u/queue/FINISHED"; fi # 5.8
  answer opened "$n"
}
best() { # MODE TAG KEEP: put once a run (5.7)
  case $1.$3 in max.0 | min.0) ;; max.* | min.*) number "$3" ;; *) false ;; esac || { answer error 'no rule'; return; }
  put ./best.json "{\"protocol\":\"1.0\",\"mode\":\"$1\",\"tag\":$(js "$2"),\"keep\":$3}"
  record ./best.json mode=mode keep=keep rule_tag=tag
  [ "$mode.${keep:-1}.$rule_tag" = "$1.$3.$2" ] || { answer refused 'best.json has another rule'; return; }
  prune; answer ruled
}
close_job() { # STATUS [REASON] (4.3): claims are given back, then the end, then the beat goes
  [ -z "$ce" ] || { settle returned "\"reason\":\"the session ends\",$(facts)" && bring; }; ce=
  [ "$job" = main ] || prune
  close_log=scalars/$job.$n.jsonl close_sizes='' close_reason=null
  if [ -f "$close_log" ]; then sync "$close_log" && close_sizes="\"$close_log\":$(stat -c %s "$close_log")"; fi
  [ -z "${2-}" ] || close_reason=$(js "$2")
  put_end "$job" "$n" "$token" "$1" "$close_reason" "\"sizes\":{$close_sizes}"
  # closed by a false verdict meanwhile: the next session has the true status
  case $? in 1) holding && close_job "$@"; return ;; 2) return 2 ;; esac
  stop_beating; rm -f "jobs/$job.$n.$token".beat.*
}
give_up() { [ -z "$n" ] || [ -n "$fenced" ] || { holding && close_job failed "$1"; }; } # 4.8
obey() {
  command=$1; shift
  if [ "$command" = open ]; then
    if [ -n "$n" ]; then answer error 'a session was opened before'; else open_job "$@"; fi
    [ -n "$helper" ] || n='' job=''; return
  fi
  [ -n "$n" ] || { answer error 'no session is open'; return; }
  [ -n "$fenced" ] || holding
  [ $? -ne 2 ] || { answer error 'the run is not where it was'; return; }
  if [ -n "$fenced" ]; then answer fenced; [ "$command" != close ] || exit 0; return; fi
  case $command${u:-?} in # 2: a unit that is unreachable is not an empty one
    enqueue\? | finish\? | take\? | outcome\?) answer error 'the unit cannot be reached'; return ;;
  esac
  case $command in
    beat) answer beaten "$c" ;;
    log) if log_line "$@" 2>/dev/null; then answer logged; else answer error 'the line cannot be written'; fi ;;
    finish) if write_finished; then answer finished; else answer error 'FINISHED cannot be written'; fi ;;
    enqueue | best | take | outcome) "$command" "$@" ;;
    close)
      if close_job "$@"; then answer closed; exit 0; fi
      if [ -n "$fenced" ]; then answer fenced; exit 0; else answer error 'the end cannot be written'; fi
      ;;
    *) answer error "no such command: $command" ;;
  esac
}
drive() { # RUN
  run=$1 private=${TMPDIR:-/tmp}/fsrun-sh-$(random) woken='' line=''; mkdir -m 700 "$private" || exit 1
  trap 'stop_beating; rm -rf "$private"' EXIT
  trap 'give_up terminated; exit 143' TERM HUP INT
  identify; b2sum=$(b2sum -l 128 </dev/null 2>/dev/null)
  exec 3<&0 </dev/null
  trap 'woken=1' USR1
  while part=; do
    IFS= read -r part <&3; read_rc=$?
    line=$line$part # of which a signal may have cut the rest
    if [ $read_rc -eq 0 ]; then
      set -f; IFS=$tab
      # shellcheck disable=SC2086
      set -- $line; set +f; IFS=" $tab$nl"; line=
      [ $# -eq 0 ] || obey "$@"
    elif [ -z "$woken" ]; then break; fi
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
