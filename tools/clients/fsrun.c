/*
 * A client of fsrun, the training run as a folder, in one file of C11 and the C library of a POSIX system.
 *
 *     cc -std=c11 -O2 -o fsrun-c fsrun.c
 *     fsrun-c read RUN      print what the run folder RUN says
 *     fsrun-c drive RUN     take commands from standard input (docs/clients.md)
 *
 * Numbers in comments are sections of protocol.md. In order: memory and text; JSON; files and publication (7, 8.1);
 * names (3); the session (4); closing others (4.4); opening (4.1); hand-over (5.1); claims and outcomes (5.2 to 5.5);
 * best/ (5.7); the evaluator's look; what `read` prints (8); the commands.
 *
 * One process and no threads: it beats while it waits for the next command, and keep_alive() stands in every loop that
 * may last. An error ends a command and not the client: fail() jumps back to the loop, which answers `error`. Memory is
 * taken from `scratch`, which is emptied after each command, and seldom from `lasting`, which is not.
 *
 * Left out, since no other job depends on it: views (4.8), spills (4.9), markers of live runs (2), samples of the
 * machine, media, tables and artifacts. data.parquet is not read: its logs are, and a fence counts their lines alone.
 */
#define _POSIX_C_SOURCE 200809L

#include <ctype.h>
#include <dirent.h>
#define _POSIX_C_SOURCE 200809L

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef __GNUC__
#define __attribute__(of_gcc)
#endif
#define LIKE_PRINTF(at, rest) __attribute__((format(printf, at, rest)))

#define BEGIN "{\"protocol\":\"1.0\"" /* of every record */
#define NONE LLONG_MIN                /* a number that is not known */
enum { MAX_ENTRY = 200, MAX_TAG = 512, MAX_NESTING = 100, MAX_RECORD = 64 << 20 };
static const double LINGER = 600, GIVE_UP = 30; /* seconds: after main is gone (5.8); until a command fails */

/* ---- Memory and text ---- */

typedef struct { const char *at; size_t size; } Bytes;
static const Bytes none;
typedef struct { char *at; size_t size, room; } Buffer;
typedef struct Block { struct Block *below; max_align_t memory[]; } Block;
static Block *scratch, *lasting;
static const char *leftover; /* what an error leaves behind on its way, to be removed */
static jmp_buf back;         /* where an error ends a command */
static char problem[1024];
enum { FAILED = 1, LEFT = 2 };

static _Noreturn void die(const char *why) {
    fprintf(stderr, "fsrun-c: %s\n", why);
    exit(1); /* the session expires, as after any death */
}

static void *take_room(Block **arena, size_t size) {
    Block *block = calloc(1, sizeof(Block) + size);
    if (block == NULL) die("out of memory");
    block->below = *arena;
    return (*arena = block)->memory;
}

static void clear(Block **arena) {
    for (Block *below; *arena != NULL; *arena = below) { below = (*arena)->below; free(*arena); }
}

/* An array with room for `more` items. */
static void *grow(void *at, size_t size, size_t *room, size_t more, size_t item) {
    if (*room - size >= more) return at;
    *room = 2 * *room + more + 15;
    void *bigger = take_room(&scratch, *room * item);
    return size > 0 ? memcpy(bigger, at, size * item) : bigger;
}

#define PUSH(list, item) \
    ((list).at = grow((list).at, (list).size, &(list).room, 1, sizeof *(list).at), (list).at[(list).size++] = (item))

static void sort(void *at, size_t count, size_t item, int order(const void *, const void *)) {
    if (count > 0) qsort(at, count, item, order);
}

/* A NUL stands behind all that is added. */
static void add_bytes(Buffer *buffer, const void *from, size_t size) {
    buffer->at = grow(buffer->at, buffer->size, &buffer->room, size + 1, 1);
    memcpy(buffer->at + buffer->size, from, size);
    buffer->size += size;
    buffer->at[buffer->size] = '\0';
}

static void add_list(Buffer *buffer, const char *format, va_list rest) {
    va_list again;
    va_copy(again, rest);
    size_t size = (size_t)vsnprintf(NULL, 0, format, again);
    va_end(again);
    buffer->at = grow(buffer->at, buffer->size, &buffer->room, size + 1, 1);
    vsnprintf(buffer->at + buffer->size, size + 1, format, rest);
    buffer->size += size;
}

LIKE_PRINTF(2, 3) static void add(Buffer *buffer, const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    add_list(buffer, format, rest);
    va_end(rest);
}

/* A text, or a path below a folder. */
LIKE_PRINTF(2, 3) static const char *below(const char *folder, const char *format, ...) {
    Buffer buffer = {0};
    va_list rest;
    va_start(rest, format);
    if (folder != NULL) add(&buffer, "%s/", folder);
    add_list(&buffer, format, rest);
    va_end(rest);
    return buffer.at;
}

static const char *run, *unit; /* the run folder, and the unit of its hand-over (2) */
#define text(...) below(NULL, __VA_ARGS__)
#define IN_RUN(...) below(run, __VA_ARGS__)
#define IN_UNIT(...) below(unit, __VA_ARGS__)

static const char *keep(const char *from) {
    return memcpy(take_room(&lasting, strlen(from) + 1), from, strlen(from) + 1);
}

/* Ends the command with `error TEXT`. */
LIKE_PRINTF(1, 2) static _Noreturn void fail(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vsnprintf(problem, sizeof problem, format, rest);
    va_end(rest);
    longjmp(back, FAILED);
}

static _Noreturn void fail_at(const char *path) { fail("%s: %s", path, strerror(errno)); }
static _Noreturn void leave(void) { longjmp(back, LEFT); } /* ends the command with `fenced` */

static Bytes bytes(const char *from) { return (Bytes){from, strlen(from)}; }
static Bytes content(const Buffer *buffer) { return (Bytes){buffer->size > 0 ? buffer->at : "", buffer->size}; }
static bool equal(const char *a, const char *b) { return strcmp(a, b) == 0; }
static int by_number(long long a, long long b) { return (a > b) - (a < b); }

static int compare(Bytes a, Bytes b) {
    int order = memcmp(a.at, b.at, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static bool ends_with(const char *name, const char *end) {
    return strlen(name) >= strlen(end) && equal(name + strlen(name) - strlen(end), end);
}

/* `name` without its last `count` bytes. */
static const char *without(const char *name, size_t count) { return text("%.*s", (int)(strlen(name) - count), name); }

/* How many bytes the character of UTF-8 at `at` has; 0: it is none. Stops at a NUL. */
static size_t character(const char *at) {
    const unsigned char *b = (const unsigned char *)at;
    size_t size = b[0] < 0x80 ? 1 : b[0] < 0xC2 ? 0 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : b[0] < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < size; i++)
        if ((b[i] & 0xC0) != 0x80) return 0;
    bool overlong = (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xF0 && b[1] < 0x90);
    bool surrogate = b[0] == 0xED && b[1] > 0x9F, beyond = b[0] == 0xF4 && b[1] > 0x8F;
    return overlong || surrogate || beyond ? 0 : size;
}

static bool is_utf8(const char *name) {
    size_t size = 1;
    for (; *name != '\0' && size > 0; name += size) size = character(name);
    return size > 0;
}

/* Whether a name has 1 to `most` bytes of UTF-8 and no control characters. */
static bool is_clean(const char *name, size_t most) {
    for (const char *at = name; *at != '\0'; at++)
        if ((unsigned char)*at < 32 || *at == 127) return false;
    return *name != '\0' && strlen(name) <= most && is_utf8(name);
}

/* ---- JSON (8.2): a value is its place in a source that was parsed as a whole, and no value has no place ---- */

/* Scanners need no bounds, since a source ends in a NUL, which is part of nothing. They return where a value ends, or
 * NULL where there is none. */
static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/* Four hexadecimal digits, or -1. */
static long scan_hex(const char *at) {
    char digits[5] = {0};
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)(digits[i] = at[i]))) return -1;
    return strtol(digits, NULL, 16);
}

static void add_character(Buffer *into, long code) {
    unsigned char out[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size; i-- > 1; code >>= 6) out[i] = (unsigned char)(0x80 | (code & 0x3F));
    out[0] = (unsigned char)((size == 1 ? 0 : size == 2 ? 0xC0 : size == 3 ? 0xE0 : 0xF0) | code);
    add_bytes(into, out, size);
}

/* `into`, unless it is NULL, gets the text that is meant. */
static const char *scan_text(const char *at, Buffer *into) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (*at++ != '"') return NULL;
    for (;;) {
        const char *plain = at;
        for (size_t size; *at != '"' && *at != '\\'; at += size)
            if ((unsigned char)*at < 32 || (size = character(at)) == 0) return NULL;
        if (into != NULL) add_bytes(into, plain, (size_t)(at - plain));
        if (*at++ == '"') return at;
        const char *letter = *at != '\0' ? strchr(letters, *at) : NULL;
        long code = letter != NULL ? meant[letter - letters] : *at == 'u' ? scan_hex(at + 1) : -1;
        if (code < 0 || (code >= 0xDC00 && code < 0xE000)) return NULL;
        at += letter != NULL ? 1 : 5;
        if (code >= 0xD800 && code < 0xDC00) { /* half a pair is text to nobody */
            long low = at[0] == '\\' && at[1] == 'u' ? scan_hex(at + 2) : -1;
            if (low < 0xDC00 || low >= 0xE000) return NULL;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        if (into != NULL) add_character(into, code);
    }
}

static const char *scan_digits(const char *at) {
    size_t size = strspn(at, "0123456789");
    return size > 0 ? at + size : NULL;
}

static const char *scan_number(const char *at) {
    at += *at == '-';
    if (*at == '0' && isdigit((unsigned char)at[1])) return NULL;
    at = scan_digits(at);
    if (at != NULL && *at == '.') at = scan_digits(at + 1);
    if (at != NULL && (*at == 'e' || *at == 'E')) at = scan_digits(at + 1 + (at[1] == '+' || at[1] == '-'));
    return at;
}

/* `words`: readers of logs take the bare NaN and infinities that many programs write. */
static const char *scan_value(const char *at, int depth, bool words) {
    static const char *const bare[] = {"null", "false", "true", "NaN", "Infinity", "-Infinity"};
    const char close = *at == '{' ? '}' : ']';
    if (*at == '"') return scan_text(at, NULL);
    for (size_t i = 0; i < (words ? 6 : 3); i++)
        if (strncmp(at, bare[i], strlen(bare[i])) == 0) return at + strlen(bare[i]);
    if (*at != '{' && *at != '[') return scan_number(at);
    at = skip_space(at + 1);
    if (depth == MAX_NESTING) return NULL;
    if (*at == close) return at + 1;
    for (;; at = skip_space(at)) {
        if (close == '}') {
            at = scan_text(at, NULL);
            if (at == NULL || *(at = skip_space(at)) != ':') return NULL;
            at = skip_space(at + 1);
        }
        at = scan_value(at, depth + 1, words);
        if (at == NULL || (*(at = skip_space(at)) != ',' && *at != close)) return NULL;
        if (*at++ == close) return at;
    }
}

/* The value that a source, behind which a NUL stands, holds and nothing else. */
static Bytes parse(Bytes source, bool words) {
    const char *from = skip_space(source.at), *to = scan_value(from, 0, words);
    bool good = to != NULL && skip_space(to) == source.at + source.size;
    return good ? (Bytes){from, (size_t)(to - from)} : none;
}

static bool is_object(Bytes value) { return value.at != NULL && *value.at == '{'; }
typedef struct { Bytes key, value; } Item;

/* The next item of an object or array; the first one after {0}. */
static bool next_item(Bytes of, Item *item) {
    if (of.at == NULL || (*of.at != '{' && *of.at != '[')) return false;
    const char *at = of.at;
    if (item->value.at != NULL && *(at = skip_space(item->value.at + item->value.size)) != ',') return false;
    at = skip_space(at + 1);
    if (*at == '}' || *at == ']') return false;
    if (*of.at == '{') {
        const char *end = scan_text(at, NULL);
        item->key = (Bytes){at + 1, (size_t)(end - at) - 2};
        if (memchr(at, '\\', item->key.size + 1) != NULL) {
            Buffer meant = {0};
            scan_text(at, &meant);
            item->key = content(&meant);
        }
        at = skip_space(skip_space(end) + 1);
    }
    item->value = (Bytes){at, (size_t)(scan_value(at, 0, true) - at)};
    return true;
}

/* Whether a key, or a bare value, is this word. */
static bool spells(Bytes value, const char *word) { return value.at != NULL && compare(value, bytes(word)) == 0; }

/* The last value under a key. */
static Bytes get(Bytes object, const char *key) {
    Bytes found = none;
    for (Item item = {0}; is_object(object) && next_item(object, &item);)
        if (spells(item.key, key)) found = item.value;
    return found;
}

static bool is_none(Bytes value) { return value.at == NULL || spells(value, "null"); }
static bool is_number(Bytes value) { return value.at != NULL && isdigit((unsigned char)value.at[*value.at == '-']); }

/* The text that a value stands for, or NULL: it is none, or holds a NUL. */
static const char *as_text(Bytes value) {
    Buffer meant = {0};
    if (value.at == NULL || *value.at != '"') return NULL;
    scan_text(value.at, &meant);
    return strlen(content(&meant).at) == meant.size ? content(&meant).at : NULL;
}

static bool is_text(Bytes value, const char *wanted) {
    const char *found = as_text(value);
    return found != NULL && equal(found, wanted);
}

/* A whole number of 64 bits, such as 12 or 12.0. */
static bool as_whole(Bytes value, long long *whole) {
    if (!is_number(value)) return false;
    errno = 0;
    *whole = strtoll(value.at, NULL, 10);
    if (strspn(value.at, "-0123456789") >= value.size) return errno == 0;
    double real = strtod(value.at, NULL);
    bool good = real > -9223372036854775808.0 && real < 9223372036854775808.0 && floor(real) == real;
    *whole = good ? (long long)real : 0;
    return good;
}

static long long get_whole(Bytes object, const char *key, long long otherwise) {
    long long whole;
    return as_whole(get(object, key), &whole) ? whole : otherwise;
}

/* A number, or one of the words for what JSON has no number for (6). */
static bool as_real(Bytes value, double *real) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    const double meant[] = {NAN, INFINITY, -INFINITY};
    if (is_number(value)) *real = strtod(value.at, NULL);
    for (size_t i = 0; i < 3 && !is_number(value); i++)
        if (spells(value, words[i]) || is_text(value, words[i])) return *real = meant[i], true;
    return is_number(value);
}

/* A text with its quotes; what is no UTF-8 becomes U+FFFD. */
static void add_text(Buffer *buffer, Bytes from) {
    add(buffer, "\"");
    for (size_t i = 0, size; i < from.size; i += size > 0 ? size : 1) {
        const char *at = from.at + i;
        size = character(at);
        if (size == 0 || size > from.size - i) add(buffer, "\\ufffd");
        else if ((unsigned char)*at < 32) add(buffer, "\\u%04x", (unsigned)*at);
        else if (*at == '"' || *at == '\\') add(buffer, "\\%c", *at);
        else add_bytes(buffer, at, size);
    }
    add(buffer, "\"");
}

/* `,"key":"value"`, or null where there is no value. */
static void add_pair(Buffer *buffer, const char *key, const char *value) {
    add(buffer, ",\"%s\":%s", key, value != NULL ? "" : "null");
    if (value != NULL) add_text(buffer, bytes(value));
}

static void add_whole(Buffer *buffer, const char *key, long long whole) {
    if (whole != NONE) add(buffer, ",\"%s\":%lld", key, whole);
}

static void add_real(Buffer *buffer, double real) {
    if (isfinite(real)) add(buffer, "%.17g", real);
    else add(buffer, isnan(real) ? "\"NaN\"" : real > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

/* ---- Time ---- */

#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME CLOCK_MONOTONIC
#endif

/* Seconds on a clock that counts suspend (4.5). */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long long wall_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Now, for people. */
static const char *rfc3339(void) {
    long long ns = wall_ns();
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm parts;
    char date[32];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
    return text("%s.%03dZ", date, (int)(ns / 1000000 % 1000));
}

static void nap(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)}, NULL);
}

static void keep_alive(void);

/* ---- Files: fresh reads (8.1) and publication (7) ---- */

static struct {
    char job[64], token[40];
    long long session;
    enum { UNOPENED, OPEN, GONE, FENCED, CLOSED } state;
    bool ending;                        /* the end is being put: nothing is protected any more (4.3) */
    double timeout;                     /* T */
    const char *timeout_text, *carried; /* what locks of this job say again */
    long long count;                    /* of the beat that stands */
    double last_good, doubt;            /* start of the last good beat; of the first one tried since then, 0: none */
    double audited, due;                /* when the folder was last looked at; when the next beat is */
    char tried[40];                     /* token of the last lock that was tried, if a reply was lost */
    double tried_at;
    const char *holder;                 /* this process (6.1) */
    long long logged;                   /* bytes of the log of this session, all of them durable */
    long long finished;                 /* main session that FINISHED names, 0: none */
} me;

typedef struct { const char **at; size_t size, room; } Names;
static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }
static bool is_absent(int error) { return error == ENOENT || error == ENOTDIR || error == ESTALE; }

/* Does something on the way out and leaves errno as it was. */
#define QUIETLY(what) do { int errno_before = errno; what; errno = errno_before; } while (0)

/* A fresh listing, sorted: open and close the folder, have what is remembered of it dropped, then list it. */
static bool list(const char *folder, Names *names) {
    *names = (Names){0};
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return false;
#ifdef POSIX_FADV_DONTNEED
    (void)posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED);
#endif
    close(opened);
    DIR *stream = opendir(folder);
    if (stream == NULL) return false;
    for (struct dirent *item; (errno = 0, item = readdir(stream)) != NULL;)
        if (!equal(item->d_name, ".") && !equal(item->d_name, "..")) PUSH(*names, text("%s", item->d_name));
    QUIETLY(closedir(stream));
    QUIETLY(sort(names->at, names->size, sizeof *names->at, by_name));
    return errno == 0;
}

/* A fresh listing, empty where there is no such folder. */
static Names names_in(const char *folder) {
    Names names;
    if (!list(folder, &names) && !is_absent(errno)) fail_at(folder);
    return names;
}

static bool has(const Names *names, const char *name) {
    return names->size > 0 && bsearch(&name, names->at, names->size, sizeof *names->at, by_name) != NULL;
}

static const char *last_part(const char *path) { return strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path; }
static const char *folder_of(const char *path) { return without(path, strlen(strrchr(path, '/'))); }

/* Absence is judged by a fresh listing alone (8.1). */
static bool is_present(const char *path) {
    Names names = names_in(folder_of(path));
    return has(&names, last_part(path));
}

/* At most `most` bytes of a file from `start` on (below 0: so many before its end), and none behind a NUL, where every
 * reader stops (8.2): in memory that grows with what is there, since a size is a claim. False: errno says why. */
static bool read_file(const char *path, long long start, long long most, Bytes *found) {
    static char piece[1 << 16];
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat facts;
    Buffer into = {0};
    ssize_t count = -1;
    const char *nul = NULL;
    if (file < 0) return false;
    bool good = fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
    if (!good) errno = ENOENT;
    if (start < 0) start = facts.st_size + start > 0 ? facts.st_size + start : 0;
    while (good && nul == NULL && count != 0) {
        long long left = most - (long long)into.size;
        size_t want = left < (long long)sizeof piece ? (size_t)left : sizeof piece;
        count = pread(file, piece, want, (off_t)(start + (long long)into.size));
        if ((good = count >= 0)) {
            nul = memchr(piece, 0, (size_t)count);
            add_bytes(&into, piece, nul != NULL ? (size_t)(nul - piece) + 1 : (size_t)count);
            keep_alive();
        }
    }
    QUIETLY(close(file));
    *found = content(&into);
    return good;
}

/* A record (6): an object that ends in a newline; none: it is not there yet. Never fails, so that a beat may ask. */
static Bytes peek_record(const char *path) {
    Bytes found;
    errno = 0;
    if (!read_file(path, 0, MAX_RECORD + 1, &found)) return none;
    errno = 0;
    if (found.size == 0 || found.size > MAX_RECORD || found.at[found.size - 1] != '\n') return none;
    size_t mark = strncmp(found.at, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    found = parse((Bytes){found.at + mark, found.size - mark}, false);
    return is_object(found) ? found : none;
}

/* The same, to act upon. */
static Bytes record(const char *path) {
    Bytes found = peek_record(path);
    bool no_file = errno == 0 || is_absent(errno) || errno == ELOOP || errno == ENXIO || errno == EINVAL;
    if (found.at == NULL && !no_file) fail_at(path);
    return found;
}

static void random_name(char out[17]) {
    unsigned char from[8];
    FILE *file = fopen("/dev/urandom", "r");
    if (file == NULL || fread(from, 1, sizeof from, file) != sizeof from) die("no random numbers");
    fclose(file);
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", from[i]);
}

/* A hidden name that carries who made it (3). */
static const char *hidden(void) {
    char name[17];
    random_name(name);
    return text(".tmp-%s.%lld-%s", me.job, me.session, name);
}

static bool sync_folder(const char *folder) {
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = opened >= 0 && (fsync(opened) == 0 || errno == EINVAL); /* some systems cannot */
    if (opened >= 0) QUIETLY(close(opened));
    return good;
}

static bool write_all(int file, Bytes data) {
    for (size_t done = 0; done < data.size;) {
        ssize_t count = write(file, data.at + done, data.size - done);
        if (count <= 0 && errno != EINTR) return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* Syncs and closes a new file; removed again where it is not whole and durable. */
static bool end_file(int file, const char *path, bool good) {
    good = good && fsync(file) == 0;
    if (!good) QUIETLY(close(file));
    else good = close(file) == 0;
    if (!good) QUIETLY(unlink(path));
    return good;
}

static bool create(const char *path, Bytes data) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0664);
    return file >= 0 && end_file(file, path, write_all(file, data));
}

static bool refuses_links(int error) {
    return error == EPERM || error == EACCES || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS ||
           error == EMLINK || error == EXDEV;
}

/* Links a hidden file to a name that must not exist. 1: it stands there, 0: another does, -1: an error (errno). */
static int link_new(const char *temp, const char *path) {
    struct stat a, b;
    bool there = false;
    if (link(temp, path) == 0) return 1;
    QUIETLY(there = lstat(temp, &a) == 0 && lstat(path, &b) == 0);
    if (there && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return 1; /* a lost reply: the first try happened */
    return errno == EEXIST ? 0 : -1;
}

/* Put-if-absent. 1: what stands at `path` is ours, 0: another's, -1: an error (errno), and nothing of ours. */
static int put(const char *path, Bytes data) {
    const char *temp = below(folder_of(path), "%s", hidden());
    if (!create(temp, data)) return -1;
    int ours = link_new(temp, path);
    if (ours < 0 && refuses_links(errno)) ours = create(path, data) ? 1 : errno == EEXIST ? 0 : -1;
    QUIETLY(unlink(temp));
    return ours == 1 && !sync_folder(folder_of(path)) ? -1 : ours;
}

/* The same, where an error ends the command; who is fenced puts nothing any more (4.6). */
static bool must_put(const char *path, Bytes data) {
    if (me.state == FENCED) leave();
    int ours = put(path, data);
    if (ours < 0) fail_at(path);
    return ours == 1;
}

/* One rename, durable. After an error what stands decides: true if it stands at `to`, whoever moved it there. */
static bool move(const char *from, const char *to) {
    bool happened = rename(from, to) == 0, gone = !happened && is_absent(errno);
    if (!happened) QUIETLY(happened = is_present(to) && (gone || !is_present(from)));
    if (!happened && !gone) fail_at(from);
    if (!happened) return false;
    if (!sync_folder(folder_of(to))) fail_at(to);
    return true;
}

static void replace(const char *path, Bytes data) {
    const char *temp = leftover = below(folder_of(path), "%s", hidden());
    if (!create(temp, data) || !move(temp, path)) fail_at(path);
}

/* Makes the folders of `path` below `root`, which must be there: it may have been moved away (4.1). */
static void make_folders(const char *root, const char *path) {
    for (const char *at = path; *at != '\0'; at += *at == '/') {
        at += strcspn(at, "/");
        const char *folder = below(root, "%.*s", (int)(at - path), path);
        if (mkdir(folder, 02775) == 0) sync_folder(folder_of(folder));
        else if (errno != EEXIST) fail_at(folder);
    }
}

static bool is_folder(const char *path) {
    struct stat facts;
    return lstat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* What another host holds open (.nfs*) stays until the next time. */
static void remove_tree(const char *path) {
    Names names = {0};
    if (is_folder(path)) list(path, &names);
    for (size_t i = 0; i < names.size; i++) remove_tree(below(path, "%s", names.at[i]));
    if (is_folder(path)) rmdir(path);
    else unlink(path);
    keep_alive();
}

/* Where a command ends, by an error or not. */
static void clean_up(void) {
    if (leftover != NULL) remove_tree(leftover);
    leftover = NULL;
    clear(&scratch);
}

static void empty_trash(const char *root) {
    Names names = names_in(below(root, "trash"));
    for (size_t i = 0; i < names.size; i++) remove_tree(below(root, "trash/%s", names.at[i]));
}

/* ---- Names (3) ---- */

/* A number of at most 18 digits without leading zeros. */
static bool as_number(const char *name, long long *found) {
    size_t size = strlen(name);
    *found = size <= 18 ? strtoll(name, NULL, 10) : 0;
    return size > 0 && size <= 18 && strspn(name, "0123456789") == size && (name[0] != '0' || size == 1);
}

/* The same from 1 on: of a session or an attempt. */
static bool as_count(const char *name, long long *found) { return as_number(name, found) && *found > 0; }

/* Of `least` to `most` of these letters. */
static bool is_of(const char *name, size_t least, size_t most, const char *letters) {
    size_t size = strlen(name);
    return size >= least && size <= most && strspn(name, letters) == size;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789"
static bool is_job(const char *name) { return is_of(name, 1, 48, LETTERS "_-") && name[0] != '_' && name[0] != '-'; }

/* Cuts a name at its dots; 6 parts mean that there are more than five. */
static int split(const char *name, const char *parts[6]) {
    char *at = strcpy(take_room(&scratch, strlen(name) + 1), name);
    int count = 0;
    for (char *dot; count < 6; at = dot + 1) {
        parts[count++] = at;
        if ((dot = strchr(at, '.')) == NULL) break;
        *dot = '\0';
    }
    return count;
}

typedef enum { UNKNOWN, LOCK, END, BEAT, TAKEN } Kind;
typedef struct { Kind kind; const char *job, *token; long long session, count; } JobFile;

/* Reads a name of jobs/; what the protocol does not know is UNKNOWN, kept and ignored. */
static JobFile job_file(const char *name) {
    JobFile file = {UNKNOWN, NULL, "", 0, 0};
    const char *parts[6];
    int count = split(name, parts);
    if ((count != 3 && count != 5) || !is_job(file.job = parts[0]) || !as_count(parts[1], &file.session)) return file;
    if (count == 3) file.kind = equal(parts[2], "lock") ? LOCK : equal(parts[2], "end") ? END : UNKNOWN;
    else if (is_of(file.token = parts[2], 8, 32, LETTERS) && as_number(parts[4], &file.count))
        file.kind = equal(parts[3], "beat") ? BEAT : equal(parts[3], "taken") ? TAKEN : UNKNOWN;
    return file;
}

static bool is_entry(const char *name) {
    return name[0] != '.' && !ends_with(name, ".tmp") && !equal(name, "FINISHED") && strchr(name, '/') == NULL &&
           is_clean(name, MAX_ENTRY);
}

/* Reads `<entry>.<k>` from the right, since entries may hold dots. */
static bool read_key(const char *key, const char **entry, long long *attempt) {
    const char *dot = strrchr(key, '.');
    *entry = dot != NULL ? without(key, strlen(dot)) : "";
    return dot != NULL && as_count(dot + 1, attempt) && is_entry(*entry);
}

static bool outcome_name(const char *name, const char **entry, long long *attempt) {
    return ends_with(name, ".json") && read_key(without(name, 5), entry, attempt);
}

typedef struct { const char *base, *suffix; long long use; } Use;

/* `epoch_012~2.pt` is the second use of `epoch_012.pt`. */
static Use use_of(const char *name) {
    const char *dot = strrchr(name, '.'), *mark;
    bool is_suffix = dot != NULL && dot > name && dot[-1] != '.' && isalpha((unsigned char)dot[1]) && strlen(dot) <= 17;
    for (const char *at = is_suffix ? dot + 1 : ""; *at != '\0'; at++)
        is_suffix = is_suffix && isalnum((unsigned char)*at);
    Use found = {without(name, is_suffix ? strlen(dot) : 0), is_suffix ? dot : "", 1};
    long long use;
    mark = strrchr(found.base, '~');
    if (mark != NULL && mark > found.base && as_number(mark + 1, &use) && use >= 2 && use < 1000000000)
        found = (Use){without(found.base, strlen(mark)), found.suffix, use};
    return found;
}

/* The name for the next use of an entry name, after all uses in `taken`; a base that is too long is cut. */
static const char *next_use(const char *name, const Names *taken) {
    Use mine = use_of(name);
    for (size_t i = 0; i < taken->size; i++) {
        Use other = use_of(taken->at[i]);
        bool same = equal(other.base, mine.base) && equal(other.suffix, mine.suffix);
        mine.use = same && other.use > mine.use ? other.use : mine.use;
    }
    for (;;) {
        const char *mark = text("~%lld%s", ++mine.use, mine.suffix), *found;
        size_t room = MAX_ENTRY - strlen(mark), size = strlen(mine.base) < room ? strlen(mine.base) : room;
        while (size > 0 && ((unsigned char)mine.base[size] & 0xC0) == 0x80) size--;
        found = text("%.*s%s", (int)size, mine.base, mark);
        if (!has(taken, found)) return found;
    }
}

/* Whether `word` stands before place `at`, in upper or lower case. */
static bool follows(const char *name, size_t at, const char *word) {
    size_t size = strlen(word);
    for (size_t i = 0; i < size; i++)
        if (at < size || tolower((unsigned char)name[at - size + i]) != word[i]) return false;
    return true;
}

/* The step in an entry's name (5.9), or NONE: `step=1200` over `epoch_3` and `checkpoint-500` over the last number. */
static long long step_of_name(const char *name) {
    const char *base = use_of(name).base;
    long long step = NONE;
    int best = 0;
    for (size_t at = 0, size; base[at] != '\0'; at += size > 0 ? size : 1) {
        size = strspn(base + at, "0123456789");
        size_t from = at > 0 && strchr("=_-", base[at - 1]) != NULL ? at - 1 : at;
        bool second = follows(base, from, "epoch") || follows(base, at, "checkpoint-");
        int rank = follows(base, from, "step") ? 3 : second ? 2 : 1;
        if (size == 0 || rank < best) continue;
        best = rank;
        errno = 0;
        step = strtoll(base + at, NULL, 10);
        step = errno == 0 ? step : NONE;
    }
    return step;
}

/* ---- The session (4) ---- */

static const char *job_path(const char *job, long long session, const char *kind) {
    return IN_RUN("jobs/%s.%lld.%s", job, session, kind);
}

static Names jobs_now(void) { return names_in(IN_RUN("jobs")); }

/* Whether the lock, or the end, of a session is in a listing of jobs/. */
static bool stands(const Names *jobs, const char *kind, const char *job, long long session) {
    return has(jobs, text("%s.%lld.%s", job, session, kind));
}

static bool is_beat(const JobFile *file, Kind kind, const char *job, long long session, const char *token) {
    return file->kind == kind && file->session == session && equal(file->job, job) &&
           (token[0] == '\0' || equal(file->token, token)); /* "": of whatever token */
}

/* How many beats (or taken names) a session has, and the highest number of one, or -1. */
static int tally(const Names *jobs, Kind kind, const char *job, long long session, const char *token,
                 long long *count) {
    int some = 0;
    *count = -1;
    for (size_t i = 0; i < jobs->size; i++) {
        JobFile file = job_file(jobs->at[i]);
        if (!is_beat(&file, kind, job, session, token)) continue;
        some++;
        *count = file.count > *count ? file.count : *count;
    }
    return some;
}

/* The highest lock of a job, 0: it was never opened. */
static long long highest(const Names *jobs, const char *job) {
    long long found = 0;
    for (size_t i = 0; i < jobs->size; i++) {
        const char *name = jobs->at[i] + strlen(job);
        if (strncmp(jobs->at[i], job, strlen(job)) != 0 || *name != '.') continue;
        long long n = strtoll(name + 1, NULL, 10);
        if (n > found && n < 1000000000000000000 && stands(jobs, "lock", job, n)) found = n;
    }
    return found;
}

static bool is_closed(const Names *jobs, const char *job, long long session) {
    return stands(jobs, "end", job, session) || highest(jobs, job) > session;
}

/* Why nothing may be written to a run in which this lock stands (10), or NULL. */
static const char *refusal(Bytes lock) {
    const char *protocol = as_text(get(lock, "protocol"));
    Bytes words = get(lock, "must_understand");
    if (lock.at == NULL) return NULL;
    if (protocol == NULL || !isdigit((unsigned char)protocol[0]) || strtoll(protocol, NULL, 10) != 1)
        return text("protocol %s is not one that this client may write under", protocol != NULL ? protocol : "?");
    if (words.at != NULL && (*words.at != '[' || next_item(words, &(Item){0})))
        return text("what must be understood is not: %.*s", words.size < 200 ? (int)words.size : 200, words.at);
    return NULL;
}

/* A lock that says what the rules need. */
static Bytes peek_lock(const char *job, long long session) {
    Bytes lock = peek_record(job_path(job, session, "lock")), fence = get(lock, "fence");
    Bytes goes_on = get(lock, "continues");
    if (refusal(lock) != NULL) return lock;
    bool good = is_text(get(lock, "job"), job) && get_whole(lock, "session", 0) == session &&
                as_text(get(lock, "token")) != NULL && is_number(get(lock, "timeout")) &&
                (goes_on.at == NULL || spells(goes_on, "true") || spells(goes_on, "false")) &&
                (is_none(fence) || is_object(fence));
    long long size;
    for (Item item = {0}; good && next_item(fence, &item);) good = as_whole(item.value, &size) && size >= 0;
    return good ? lock : none;
}

static void good_beat(double started, long long count) {
    me.count = count;
    me.last_good = started;
    me.doubt = 0;
    me.due = started + me.timeout / 6;
    me.state = OPEN;
}

static void adopt_session(long long session, double began) {
    me.session = session;
    strcpy(me.token, me.tried);
    me.logged = 0;
    me.ending = false;
    me.audited = began;
    good_beat(began, 0);
}

/* Opens session n: the own beat, then the lock that names its token (4.1). 1: opened, 0: lost, -1: an error. */
static int open_session(long long session, const char *fence, bool continues) {
    double began = now();
    random_name(me.tried);
    me.tried_at = began;
    const char *beat = IN_RUN("jobs/%s.%lld.%s.beat.0", me.job, session, me.tried);
    const char *path = job_path(me.job, session, "lock");
    Buffer lock = {0};
    add(&lock, BEGIN ",\"job\":\"%s\",\"session\":%lld,\"token\":\"%s\"", me.job, session, me.tried);
    add(&lock, ",\"timeout\":%s,\"opened\":\"%s\",\"holder\":%s", me.timeout_text, rfc3339(), me.holder);
    add(&lock, ",\"continues\":%s,\"fence\":%s%s}\n", continues ? "true" : "false", fence, me.carried);
    if (!create(beat, bytes(""))) return -1;
    int ours = put(path, content(&lock));
    if (ours < 0 && is_text(get(peek_record(path), "token"), me.tried)) ours = 1; /* what stands decides */
    if (ours == 1) adopt_session(session, began);
    else QUIETLY(unlink(beat));
    return ours;
}

/* `{"scalars/...": bytes}` of the own log, all of which fsync has acknowledged. */
static const char *own_sizes(void) {
    return me.logged == 0 ? "{}" : text("{\"scalars/%s.%lld.jsonl\":%lld}", me.job, me.session, me.logged);
}

/* Puts an end: 1: it stands, 0: another one does, -1: an error. */
static int put_end(const char *job, long long session, bool own, const char *status, const char *reason) {
    Buffer end = {0};
    add(&end, BEGIN ",\"job\":\"%s\",\"session\":%lld,\"token\":\"%s\"", job, session, own ? me.token : "");
    add_pair(&end, "status", status);
    add_pair(&end, "reason", reason);
    add_pair(&end, "ended", rfc3339());
    add(&end, ",\"%s\":%s}\n", own ? "sizes" : "found_by", own ? own_sizes() : me.holder);
    return put(job_path(job, session, "end"), content(&end));
}

/* Removes the beats and taken names of a job's closed sessions (4.4), and the own ones once the end stands. */
static void sweep(const char *job) {
    Names jobs;
    list(IN_RUN("jobs"), &jobs);
    for (size_t i = 0; i < jobs.size; i++) {
        JobFile file = job_file(jobs.at[i]);
        bool is_beat_of = (file.kind == BEAT || file.kind == TAKEN) && equal(file.job, job);
        if (is_beat_of && is_closed(&jobs, job, file.session)) unlink(IN_RUN("jobs/%s", jobs.at[i]));
    }
}

/* Closed by a false verdict, and still the highest: put the missing end, open the next session, go on (4.6). */
static void go_on(const Names *jobs) {
    me.ending = true; /* whatever comes of it: nothing is protected until a session is open */
    bool ended = stands(jobs, "end", me.job, me.session);
    if (!ended && put_end(me.job, me.session, true, "crashed", "expired") < 0) return;
    if (open_session(me.session + 1, own_sizes(), true) == 1) sweep(me.job);
}

/* Asks a fresh listing where the session stands (4.2), and follows from it what must. */
static void look_at_session(double started) {
    Names jobs;
    if (!list(IN_RUN("jobs"), &jobs)) {
        if (is_absent(errno)) me.state = GONE; /* the run was moved: nothing is made anew there, and no end is put */
        return;
    }
    long long last = highest(&jobs, me.job), count, other;
    bool taken = tally(&jobs, TAKEN, me.job, me.session, me.token, &other) > 0;
    bool locked = stands(&jobs, "lock", me.job, me.session), ended = stands(&jobs, "end", me.job, me.session);
    bool beats = tally(&jobs, BEAT, me.job, me.session, me.token, &count) > 0;
    if (locked && last == me.session && !ended && beats) {
        if (count > me.count) good_beat(me.doubt > 0 ? me.doubt : started, count); /* it was hidden */
        me.audited = started;
        return;
    }
    Bytes lock = locked ? peek_lock(me.job, me.session) : none;
    bool is_ours = is_text(get(lock, "token"), me.token);
    if (!locked || (lock.at != NULL && !is_ours)) me.state = GONE; /* another folder than the one that was opened */
    if (!is_ours) return; /* or it cannot be read now */
    if (last > me.session && is_text(get(peek_lock(me.job, last), "token"), me.tried))
        adopt_session(last, me.tried_at); /* opened by ourselves: the reply was lost */
    else if (last > me.session) me.state = FENCED;
    else if (ended || taken || now() - me.last_good >= me.timeout) go_on(&jobs);
}

/* One rename is the whole heartbeat (4.2). Never fails: what stands there decides. */
static void beat(void) {
    static bool within;
    if (within || (me.state != OPEN && me.state != GONE)) return;
    within = true;
    double started = now();
    const char *name = IN_RUN("jobs/%s.%lld.%s.beat.", me.job, me.session, me.token);
    me.due = started + me.timeout / 12; /* unless it is a good one */
    bool good = rename(text("%s%lld", name, me.count), text("%s%lld", name, me.count + 1)) == 0;
    if (good) good_beat(started, me.count + 1);
    else if (me.doubt == 0) me.doubt = started;
    if (!good || started - me.audited >= me.timeout) /* an end put by hand leaves the beat where it is */
        look_at_session(started);
    within = false;
}

static void keep_alive(void) {
    if ((me.state == OPEN || me.state == GONE) && now() >= me.due) beat();
}

/* Whether protected work may begin (4.5). */
static bool is_protected(void) { return me.state == OPEN && !me.ending && now() - me.last_good < me.timeout * 2 / 3; }

/* Returns once it may. */
static void protect(void) {
    for (double began = now(); !is_protected(); nap(me.timeout / 24)) {
        beat();
        if (is_protected()) return;
        if (me.state == FENCED || me.state == CLOSED) leave();
        if (now() - began > GIVE_UP) fail("%s: no heartbeat is possible", run);
    }
}

/* ---- Closing somebody else's session (4.4) ---- */

static struct { char host[256]; const char *boot, *pidns; long long ticks; } self; /* ticks -1: not known */

/* State and raw start ticks of a process, where /proc is of the own namespace; its name may hold anything, even `)`. */
static bool read_stat(long long pid, char *state, long long *ticks) {
    char link[32] = {0};
    Bytes line;
    bool is_own = readlink("/proc/self", link, sizeof link - 1) > 0 && strtoll(link, NULL, 10) == (long long)getpid();
    const char *at = is_own && read_file(text("/proc/%lld/stat", pid), 0, 4096, &line) ? strrchr(line.at, ')') : NULL;
#define SIX " %*s %*s %*s %*s %*s %*s"
    return at != NULL && sscanf(at + 1, " %c" SIX SIX SIX " %lld", state, ticks) == 2; /* fields 3 and 22 */
}

static void know_self(void) {
    struct stat facts;
    char state;
    Bytes boot;
    gethostname(self.host, sizeof self.host - 1);
    bool known = read_file("/proc/sys/kernel/random/boot_id", 0, 64, &boot);
    self.boot = keep(known ? text("%.*s", (int)strcspn(boot.at, "\n"), boot.at) : "");
    known = stat("/proc/self/ns/pid", &facts) == 0;
    self.pidns = keep(known ? text("%llu", (unsigned long long)facts.st_ino) : "");
    if (!read_stat(getpid(), &state, &self.ticks)) self.ticks = -1;
    Buffer holder = {0};
    add(&holder, "{\"pid\":%lld,\"boot\":\"%s\",\"pidns\":\"%s\"", (long long)getpid(), self.boot, self.pidns);
    add_pair(&holder, "host", self.host);
    add_whole(&holder, "ticks", self.ticks >= 0 ? self.ticks : NONE);
    add(&holder, "}");
    me.holder = keep(holder.at);
}

/* An open session of somebody else that is watched. */
typedef struct Watch {
    struct Watch *next;
    char job[64];
    long long session;       /* 0: this one is free */
    Bytes lock;              /* none: it could not be read yet */
    const char *token;
    double timeout;
    bool wanted, hands_over; /* by the last look of the evaluator; it waits for what this side job hands over (5.8) */
    double first, before;    /* end of the first listing of the window, and of the last one, 0: none */
    int looks, some;         /* listings of the window; beats in the last one */
    long long count;         /* the highest beat seen, -1: none */
} Watch;

static Watch *watches;

static Watch *watch_of(const char *job, long long session) {
    Watch *watch = watches, *unused = NULL;
    for (; watch != NULL && !(watch->session == session && equal(watch->job, job)); watch = watch->next)
        if (watch->session == 0) unused = watch;
    if (watch == NULL && unused == NULL) {
        unused = take_room(&lasting, sizeof *unused);
        unused->next = watches;
        watches = unused;
    }
    if (watch == NULL) { /* without a lock it is watched for the longer of both timeouts */
        watch = unused;
        *watch = (Watch){.next = watch->next, .session = session, .token = "", .count = -1};
        watch->timeout = me.timeout > 30 ? me.timeout : 30;
        strcpy(watch->job, job);
    }
    Bytes lock = watch->lock.at == NULL ? peek_lock(job, session) : none;
    if (refusal(lock) != NULL && equal(job, me.job)) fail("%s: %s", job_path(job, session, "lock"), refusal(lock));
    if (lock.at != NULL) watch->lock = (Bytes){keep(text("%.*s", (int)lock.size, lock.at)), lock.size};
    if (lock.at != NULL && refusal(lock) == NULL) {
        watch->token = keep(as_text(get(lock, "token")));
        as_real(get(lock, "timeout"), &watch->timeout);
        watch->timeout = watch->timeout < 0.2 ? 0.2 : watch->timeout > 86400 ? 86400 : watch->timeout;
    }
    return watch;
}

/* Whether the holder is certainly gone: anything else is unknown, and unknown is alive. */
static bool is_dead(const Watch *watch) {
    Bytes holder = get(watch->lock, "holder");
    long long pid = get_whole(holder, "pid", 0), ticks = get_whole(holder, "ticks", -1), found;
    bool is_here = is_text(get(holder, "host"), self.host) && is_text(get(holder, "boot"), self.boot) &&
                   is_text(get(holder, "pidns"), self.pidns) && self.boot[0] != '\0' && self.pidns[0] != '\0';
    char state;
    Names threads;
    if (!is_here || pid <= 0 || pid > INT_MAX) return false;
    if (pid == (long long)getpid() && ticks == self.ticks && ticks >= 0)
        return !equal(watch->token, me.token); /* this very process, before an execv */
    if (kill((pid_t)pid, 0) != 0 && errno != EPERM) return errno == ESRCH;
    if (!read_stat(pid, &state, &found)) return false;
    bool is_zombie = state == 'Z' || state == 'X'; /* and none of its threads lives */
    is_zombie = is_zombie && list(text("/proc/%lld/task", pid), &threads) && threads.size == 1;
    return is_zombie || (ticks >= 0 && found != ticks);
}

typedef enum { WATCHING, ALIVE, EXPIRED } Verdict;

/* Takes in a fresh listing of an open session, asked for at `started` and complete at `ended`. */
static Verdict observe(Watch *watch, double started, double ended, const Names *jobs) {
    long long count, other;
    int some = tally(jobs, BEAT, watch->job, watch->session, watch->token, &count);
    int taken = tally(jobs, TAKEN, watch->job, watch->session, watch->token, &other);
    if (watch->lock.at != NULL && some == 0 && taken > 0) return EXPIRED; /* found by another: anyone may finish it */
    bool slow = ended - started > watch->timeout / 6, gap = started - watch->before > watch->timeout / 3;
    bool moved = watch->before > 0 && watch->count >= 0 && count > watch->count;
    bool same = watch->before > 0 && count == watch->count && some == watch->some;
    if (!same || gap || slow || watch->first == 0) { /* the window starts again: it was cut off, not they */
        watch->first = slow ? 0 : ended;
        watch->looks = 0;
    }
    watch->looks++;
    watch->before = ended;
    watch->some = some;
    watch->count = count > watch->count || some == 0 ? count : watch->count;
    if (moved) return ALIVE;
    return watch->first > 0 && watch->looks >= 3 && started - watch->first >= watch->timeout ? EXPIRED : WATCHING;
}

/* One look at a watched session, which is closed where it is dead or expired, by the very beats that were watched. */
static bool close_if_over(Watch *watch, double started, double ended, const Names *jobs, Verdict *verdict) {
    *verdict = WATCHING;
    if (refusal(watch->lock) != NULL) return false; /* whoever does not know its rules closes nothing of it (10) */
    *verdict = observe(watch, started, ended, jobs);
    long long session = watch->session;
    bool dead = watch->lock.at != NULL && is_dead(watch);
    if (!dead && *verdict != EXPIRED) return false;
    watch->session = 0; /* whatever is there now is watched anew */
    for (size_t i = 0; i < jobs->size; i++) {
        JobFile file = job_file(jobs->at[i]);
        if (!is_beat(&file, BEAT, watch->job, session, watch->token)) continue;
        const char *taken = IN_RUN("jobs/%s.%lld.%s.taken.%lld", file.job, session, file.token, file.count);
        if (rename(IN_RUN("jobs/%s", jobs->at[i]), taken) != 0 && !is_present(taken)) return false;
    }
    if (put_end(watch->job, session, false, "crashed", dead ? "proved dead" : "expired") < 0)
        fail_at(job_path(watch->job, session, "end"));
    sweep(watch->job);
    return true;
}

/* ---- Opening (4.1) ---- */

/* The fence over a session of somebody else (4.7): of each of its logs the complete lines up to the first NUL, never
 * less than its end says. */
static const char *fence_over(long long session) {
    const char *const folders[] = {"scalars", "media", "tables", "artifacts", text("system/%s", me.job)};
    Bytes sizes = get(record(job_path(me.job, session, "end")), "sizes"), lines;
    Buffer fence = {0};
    for (size_t i = 0; i < 5; i++) {
        const char *log = text("%s/%s%lld.jsonl", folders[i], i < 4 ? text("%s.", me.job) : "", session);
        long long size = get_whole(sizes, log, -1), from = size > 0 ? size : 0;
        if (is_present(IN_RUN("%s", log))) {
            if (!read_file(IN_RUN("%s", log), from, LLONG_MAX, &lines)) fail_at(log);
            while (lines.size > 0 && lines.at[lines.size - 1] != '\n') lines.size--;
            size = from + (long long)lines.size;
        }
        if (size >= 0) add(&fence, "%s\"%s\":%lld", fence.size > 0 ? "," : "", log, size);
    }
    return text("{%s}", content(&fence).at);
}

/* The highest lock of main that can be read. */
static Bytes main_lock(const Names *jobs) {
    Bytes lock = none;
    for (long long n = highest(jobs, "main"); n > 0 && lock.at == NULL; n--)
        if (stands(jobs, "lock", "main", n)) lock = peek_lock("main", n);
    return lock;
}

/* Where the hand-over unit stands (2); NULL: it cannot be reached, which is not the same as empty. */
static const char *find_unit(Bytes lock) {
    Bytes stated = get(lock, "unit");
    const char *path = as_text(get(stated, "path")), *id = as_text(get(stated, "id"));
    if (is_none(stated)) return run;
    bool there = path != NULL && id != NULL && is_text(get(peek_record(below(path, "unit.json")), "id"), id);
    return there ? path : NULL;
}

/* ---- Logs (6.8): one writer a file, one write a line, durable on return ---- */

static void log_line(const Buffer *line) {
    const char *path = IN_RUN("scalars/%s.%lld.jsonl", me.job, me.session);
    bool is_first = me.logged == 0;
    struct stat facts; /* opened afresh each time: what an old descriptor leads to may have been replaced */
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | (is_first ? O_CREAT : 0), 0664);
    if (file < 0) fail_at(path);
    bool is_ours = fstat(file, &facts) == 0 && (long long)facts.st_size == me.logged;
    bool good = is_ours && write_all(file, content(line)) && fsync(file) == 0;
    if (!is_ours) errno = ESTALE; /* not the log that this session wrote */
    bool torn = false;
    if (is_ours && !good) QUIETLY(torn = ftruncate(file, (off_t)me.logged) != 0);
    QUIETLY(close(file));
    if (torn) QUIETLY(fprintf(stderr, "fsrun-c: %s ends in a part of a line\n", path));
    if (!good) fail_at(path);
    me.logged += (long long)line->size;
    if (is_first && !sync_folder(folder_of(path))) fail_at(path);
}

/* ---- What was handed over, as far as is cheap to know (6.4) ---- */

static uint64_t turn(uint64_t word, int by) { return word >> by | word << (64 - by); }

/* BLAKE2b of 16 bytes (RFC 7693), without a key; zeros stand behind the data up to a multiple of 128. */
static void blake2b(const unsigned char *data, size_t size, char out[33]) {
    static const uint64_t start[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                      0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
    static const char order[10][17] = {
        "0123456789ABCDEF", "EA489FD61C02B753", "B8C052FDAE367194", "7931DCBE265A40F8", "905724AFE1BC683D",
        "2C6A0B834D75FE19", "C51FED4A0763928B", "DB7EC13950F4862A", "6FE9B308C2D714A5", "A2847615FB9E3CD0"};
    uint64_t state[8], m[16] = {0}, v[16];
    memcpy(state, start, sizeof state);
    state[0] ^= 0x01010010;
    for (size_t at = 0; at == 0 || at < size; at += 128) {
        for (size_t i = 0; i < 128; i++) m[i / 8] = m[i / 8] >> 8 | (uint64_t)data[at + i] << 56;
        memcpy(v, state, sizeof state);
        memcpy(v + 8, start, sizeof start);
        v[12] ^= at + 128 < size ? at + 128 : size;
        v[14] ^= at + 128 < size ? 0 : UINT64_MAX;
        for (int i = 0; i < 192; i++) { /* twelve rounds: four columns, then four diagonals, each in two halves */
            int down = i / 2 % 4, over = i / 8 % 2, half = i % 2;
            char digit = order[i / 16 % 10][i % 16];
            uint64_t *a = &v[down], *b = &v[4 + (down + over) % 4], *c = &v[8 + (down + 2 * over) % 4];
            uint64_t *d = &v[12 + (down + 3 * over) % 4];
            *a += *b + m[digit <= '9' ? digit - '0' : digit - 'A' + 10];
            *d = turn(*d ^ *a, half == 0 ? 32 : 16);
            *c += *d;
            *b = turn(*b ^ *c, half == 0 ? 24 : 63);
        }
        for (int i = 0; i < 8; i++) state[i] ^= v[i] ^ v[i + 8];
    }
    for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", (unsigned)(state[i / 8] >> 8 * (i % 8) & 0xFF));
}

typedef struct {
    const char *name; /* below the entry, "" where that is a file */
    long long size, mtime_ns;
    bool shared;      /* it has another name: the trainer may write over it in place */
    char sample[33];
} File;
typedef struct { File *at; size_t size, room; } Files;

static bool look_at(const char *path, File *found) {
    unsigned char blocks[3 * 4096] = {0};
    size_t used = 0;
    struct stat facts;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool good = file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
    long long size = good ? (long long)facts.st_size : 0;
    const long long starts[3] = {0, size > 12288 ? size - 4096 : 4096, size > 12288 ? size / 2 : 8192};
    for (int i = 0; good && i < 3; i++) {
        ssize_t count = pread(file, blocks + used, 4096, (off_t)starts[i]);
        good = count >= 0;
        used += count > 0 ? (size_t)count : 0;
    }
    if (file >= 0) close(file);
    if (!good) return false;
    found->size = size;
    found->mtime_ns = (long long)facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec;
    found->shared = facts.st_nlink > 1;
    blake2b(blocks, used, found->sample);
    keep_alive();
    return true;
}

/* The files of an entry that stands at `path`. */
static void look_at_all(const char *path, const char *name, Files *files) {
    Names names = is_folder(path) ? names_in(path) : (Names){0};
    for (size_t i = 0; i < names.size; i++)
        look_at_all(below(path, "%s", names.at[i]), below(name[0] != '\0' ? name : NULL, "%s", names.at[i]), files);
    File file = {.name = name};
    if (is_folder(path) || !look_at(path, &file)) return;
    PUSH(*files, file);
}

/* Copies a file, durably and in pieces, so that no fsync keeps the beat waiting for long. */
static void copy_file(const char *from, const char *to) {
    static char piece[1 << 20];
    int source = open(from, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int file = source < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0664);
    bool good = file >= 0;
    ssize_t count = 1;
    for (off_t at = 0; good && (count = pread(source, piece, sizeof piece, at)) > 0; at += count) {
        good = write_all(file, (Bytes){piece, (size_t)count}) && ((at >> 20) % 64 != 63 || fsync(file) == 0);
        if (good) keep_alive();
    }
    good = file >= 0 && end_file(file, to, good && count == 0);
    if (source >= 0) QUIETLY(close(source));
    if (!good) fail_at(from);
}

typedef struct Above { const struct Above *up; struct stat facts; } Above;

/* Links a file or folder file by file, or copies it. Links are followed; what leads to nothing is left out. */
static void clone(const char *from, const char *to, bool may_link, const Above *above) {
    Above here = {.up = above};
    bool there = stat(from, &here.facts) == 0;
    if (!there && (above == NULL || (errno != ENOENT && errno != ELOOP))) fail_at(from);
    if (there && S_ISREG(here.facts.st_mode)) {
        bool linked = may_link && linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0;
        if (may_link && !linked && !refuses_links(errno)) fail_at(from);
        if (!linked) copy_file(from, to);
        return;
    }
    bool is_dir = there && S_ISDIR(here.facts.st_mode);
    if (!is_dir && above == NULL) fail("%s is neither a file nor a folder", from);
    for (const Above *up = above; up != NULL && is_dir; up = up->up) /* or a circle of links */
        is_dir = up->facts.st_dev != here.facts.st_dev || up->facts.st_ino != here.facts.st_ino;
    if (!is_dir) return;
    if (mkdir(to, 02775) != 0) fail_at(from);
    Names names = names_in(from);
    for (size_t i = 0; i < names.size; i++)
        if (strncmp(names.at[i], ".nfs", 4) != 0)
            clone(below(from, "%s", names.at[i]), below(to, "%s", names.at[i]), may_link, &here);
    if (!sync_folder(to)) fail_at(to);
}

/* ---- Hand-over (5.1) ---- */

typedef struct { long long step, main_session, order; } Facts; /* NONE: not known */

static void add_facts(Buffer *buffer, const Facts *facts) {
    add_whole(buffer, "step", facts->step);
    add_whole(buffer, "main_session", facts->main_session);
    add_whole(buffer, "order", facts->order);
}

static Bytes meta(const char *entry, const Facts *facts, const Files *files, const char *source) {
    Buffer record = {0};
    long long size = 0;
    bool is_file = files->size == 1 && files->at[0].name[0] == '\0';
    add(&record, BEGIN ",\"kind\":\"%s\",\"handed_over\":\"%s\"", is_file ? "file" : "folder", rfc3339());
    add_pair(&record, "entry", entry);
    add_pair(&record, "source", source);
    add_facts(&record, facts);
    add(&record, ",\"files\":[");
    const char *comma = "";
    for (size_t i = 0; i < files->size; i++) {
        const File *file = &files->at[i];
        if (!is_utf8(file->name)) continue; /* JSON cannot hold it: not stated, and so not compared */
        add(&record, "%s{\"size\":%lld,\"mtime_ns\":%lld", comma, file->size, file->mtime_ns);
        add_pair(&record, "name", file->name);
        add(&record, ",\"sample\":\"%s\"}", file->sample);
        size += file->size;
        comma = ",";
    }
    add(&record, "],\"size\":%lld}\n", size);
    return content(&record);
}

static const char *meta_path(const char *entry) { return IN_UNIT("meta/%s.json", entry); }

/* Every name that is reserved, or that a file in queue/ has. */
static Names taken_names(void) {
    Names metas = names_in(IN_UNIT("meta")), taken = names_in(IN_UNIT("queue"));
    for (size_t i = 0; i < metas.size; i++)
        if (ends_with(metas.at[i], ".json")) PUSH(taken, without(metas.at[i], 5));
    sort(taken.at, taken.size, sizeof *taken.at, by_name);
    return taken;
}

/* Publishes what is staged; false: another file has that name. */
static bool publish(const char *temp, const char *target) {
    int ours = is_folder(temp) ? -1 : link_new(temp, target);
    if (ours < 0 && !is_folder(temp) && !refuses_links(errno)) fail_at(target);
    if (ours >= 0 || is_present(target)) return ours == 1;
    bool happened = rename(temp, target) == 0;
    if (!happened) QUIETLY(happened = is_present(target) && !is_present(temp));
    if (!happened && errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR && errno != EISDIR) fail_at(target);
    return happened;
}

/* Rises with every hand-over of a process. */
static long long next_order(void) {
    static long long last;
    long long order = wall_ns();
    return last = order > last ? order : last + 1;
}

static const char *enqueue(const char *path, const char *name, long long step) {
    const char *temp = leftover = IN_UNIT("queue/%s", hidden());
    Facts facts = {step, me.session, next_order()};
    Files files = {0};
    clone(path, temp, true, NULL);
    look_at_all(temp, "", &files);
    if (files.size == 0) fail("%s holds no file", path);
    for (;;) {
        facts.main_session = me.session; /* another one by now, where this one was closed by a false verdict */
        Names taken = taken_names();
        if (has(&taken, name) || !must_put(meta_path(name), meta(name, &facts, &files, path)))
            name = next_use(name, &taken);
        else if (publish(temp, IN_UNIT("queue/%s", name))) break;
        else
            unlink(meta_path(name)); /* it is not about the file that has this name */
    }
    unlink(temp);
    if (!sync_folder(IN_UNIT("queue"))) fail_at(IN_UNIT("queue"));
    return name;
}

static void write_finished(void) {
    Buffer record = {0};
    protect();
    add(&record, BEGIN ",\"main_session\":%lld,\"token\":\"%s\"", me.session, me.token);
    add(&record, ",\"written\":\"%s\"}\n", rfc3339());
    replace(IN_UNIT("queue/FINISHED"), content(&record));
    me.finished = me.session;
}

/* ---- Claims and outcomes (5.2 to 5.5) ---- */

typedef enum { DONE, FAILED_ATTEMPT, SKIPPED, LOST, RETURNED, STATES } State;
static const char *const state_names[STATES] = {"done", "failed", "skipped", "lost", "returned"};
typedef struct { const char *job, *entry; long long session, attempt; } Claim;
typedef struct { State state; const char *reason, *scores; Facts facts; double time; } Outcome; /* about to be put */
typedef struct { State state; const char *job; long long session; } Standing; /* with the claim that it is about */

static struct {
    bool there;
    Claim claim;
    Facts facts;
    const char *place; /* where a recoverer moved it when its session was taken for dead, or NULL */
} held;

/* Places below the unit. */
static const char *claim_path(const Claim *claim) {
    return text("claimed/%s.%lld/%lld/%s", claim->job, claim->session, claim->attempt, claim->entry);
}

static const char *waiting_path(const char *entry, long long attempt) {
    return attempt == 1 ? text("queue/%s", entry) : text("retry/%lld/%s", attempt, entry);
}

static const char *outcome_path(const char *entry, long long attempt) {
    return IN_RUN("evals/%s.%lld.json", entry, attempt);
}

/* A rename below `root` that is protected work, in the hands of `session` (0: whichever is held); false: the source is
 * gone. A folder below the root may be made anew, the root itself may not. */
static bool carry(const char *root, const char *from, const char *to, long long session) {
    for (int tries = 0; tries < 2; tries++) {
        make_folders(root, folder_of(to));
        protect();
        if (session > 0 && session != me.session) return false;
        if (move(below(root, "%s", from), below(root, "%s", to))) return true;
        if (!is_present(below(root, "%s", from))) break; /* else somebody has removed the empty folder */
    }
    return false;
}

/* Removes what stands at `path` of `root`, through its trash/, where anyone may go on after a crash. */
static void discard(const char *root, const char *path) {
    const char *target = text("trash/%s", hidden());
    if (carry(root, path, target, 0)) remove_tree(below(root, "%s", target));
}

static Bytes read_meta(const char *entry) { return is_present(meta_path(entry)) ? record(meta_path(entry)) : none; }

/* As the meta says; a step that it lacks as the name says (5.9). */
static Facts facts_of(const char *entry) {
    Bytes found = read_meta(entry);
    long long step = get_whole(found, "step", NONE);
    return (Facts){step != NONE ? step : step_of_name(entry), get_whole(found, "main_session", NONE),
                   get_whole(found, "order", NONE)};
}

/* Whether an entry is not what its meta says (5.1). A key that is absent is not compared. */
static bool is_changed(const char *path, Bytes meta_of) {
    for (Item item = {0}; next_item(get(meta_of, "files"), &item);) {
        const char *name = as_text(get(item.value, "name")), *sample = as_text(get(item.value, "sample"));
        if (name == NULL || name[0] == '/' || strstr(name, "..") != NULL) return true;
        const char *full = name[0] != '\0' ? below(path, "%s", name) : path;
        File found = {.name = name};
        names_in(folder_of(full)); /* no name is looked up before its folder was listed afresh (8.1) */
        if (look_at(full, &found) && found.size == get_whole(item.value, "size", found.size) &&
            found.mtime_ns == get_whole(item.value, "mtime_ns", found.mtime_ns) &&
            (sample == NULL || equal(sample, found.sample)))
            continue;
        fprintf(stderr, "fsrun-c: %s is not what was handed over\n", full);
        return true;
    }
    return false;
}

/* Reserves the next name of an entry for what stands at `path` of the unit (5.2), with what the old meta says where it
 * is about that: a plain writer may have used the name before or after. */
static const char *reserve_next(const char *entry, const char *path) {
    const char *name, *place = IN_UNIT("%s", path);
    Bytes old = read_meta(entry), fresh;
    bool goes_along = old.at != NULL && !is_changed(place, old);
    Facts facts = {step_of_name(entry), NONE, next_order()};
    Files files = {0};
    look_at_all(place, "", &files);
    do {
        Names taken = taken_names();
        Buffer data = {0};
        name = next_use(entry, &taken);
        add(&data, "{\"entry\":");
        add_text(&data, bytes(name));
        for (Item item = {0}; goes_along && next_item(old, &item);) {
            if (spells(item.key, "entry")) continue;
            add(&data, ",");
            add_text(&data, item.key);
            add(&data, ":%.*s", (int)item.value.size, item.value.at);
        }
        add(&data, "}\n");
        fresh = goes_along ? content(&data) : meta(name, &facts, &files, entry);
    } while (!must_put(meta_path(name), fresh));
    return name;
}

/* Renames a claim to the next use of its name; false: it is gone. */
static bool next_name(Claim *claim) {
    const char *before = claim_path(claim);
    claim->entry = reserve_next(claim->entry, before);
    return carry(unit, before, claim_path(claim), 0);
}

static bool understand(Bytes found, Standing *standing) {
    *standing = (Standing){DONE, as_text(get(found, "job")), get_whole(found, "session", 0)};
    while (standing->state < STATES && !is_text(get(found, "state"), state_names[standing->state])) standing->state++;
    return standing->state < STATES && standing->job != NULL && standing->session > 0 &&
           as_text(get(found, "entry")) != NULL && get_whole(found, "attempt", 0) > 0;
}

/* The outcome under an attempt, from a fresh listing; one that is being written where links are refused is waited
 * for. False: none is there. */
static bool find_standing(const char *entry, long long attempt, Standing *standing) {
    const char *path = outcome_path(entry, attempt);
    Bytes whole;
    for (double began = now(); is_present(path); nap(me.timeout / 24)) {
        if (read_file(path, 0, MAX_RECORD + 1, &whole) && whole.size > 0 && whole.at[whole.size - 1] == '\n') {
            if (!understand(record(path), standing))
                *standing = (Standing){FAILED_ATTEMPT, "", 0}; /* about nobody's claim: its name is used up (5.3) */
            return true;
        }
        keep_alive();
        if (now() - began > me.timeout) { /* its writer may put no other by now (11) */
            protect();
            move(path, IN_RUN("evals/%s", hidden()));
        }
    }
    return false;
}

static bool is_own(const Claim *claim) { return claim->session == me.session && equal(claim->job, me.job); }

static bool put_outcome(const Claim *claim, const Outcome *outcome) {
    Buffer record = {0};
    add(&record, BEGIN ",\"attempt\":%lld,\"state\":\"%s\"", claim->attempt, state_names[outcome->state]);
    add_pair(&record, "entry", claim->entry);
    add_pair(&record, "reason", outcome->reason);
    add_facts(&record, &outcome->facts);
    if (outcome->scores != NULL) add(&record, ",\"time\":%.6f,\"scores\":{%s}", outcome->time, outcome->scores);
    add(&record, ",\"ended\":\"%s\",\"job\":\"%s\",\"session\":%lld", rfc3339(), claim->job, claim->session);
    add(&record, ",\"token\":\"%s\",\"by\":%s}\n", is_own(claim) ? me.token : "", me.holder);
    return must_put(outcome_path(claim->entry, claim->attempt), content(&record));
}

static bool is_about(const Standing *standing, const Claim *claim) {
    return standing->session == claim->session && equal(standing->job, claim->job);
}

/* Puts the outcome of a claim, which may get another name by that; false: the claim is gone. `standing`: what stands
 * under its attempt now, whoever put it. After a crash: whoever recovers goes on from there. */
static bool settle(Claim *claim, const Outcome *outcome, Standing *standing) {
    for (;;) {
        *standing = (Standing){outcome->state, claim->job, claim->session};
        if (put_outcome(claim, outcome)) return true;
        if (!find_standing(claim->entry, claim->attempt, standing)) continue; /* half a record was taken aside */
        if (is_about(standing, claim)) return true;
        if (!next_name(claim)) return false; /* an earlier file has this name */
    }
}

/* ---- best/ (5.6, 5.7) ---- */

typedef struct { bool there, max; const char *tag; long long keep; } Rule;

static Rule find_rule(void) {
    const char *path = IN_RUN("best.json");
    if (!is_present(path)) return (Rule){.keep = 1};
    Bytes found = record(path), mode = get(found, "mode");
    Rule rule = {true, is_text(mode, "max"), as_text(get(found, "tag")), get_whole(found, "keep", 1)};
    if ((!rule.max && !is_text(mode, "min")) || rule.tag == NULL || rule.keep < 0) fail("%s cannot be read", path);
    return rule;
}

/* An entry of best/ with the score of its `done` outcome; without one it is not ranked. step LLONG_MAX: none. */
typedef struct { const char *entry; bool ranked; double score; long long step; } Kept;

static Kept kept(const char *entry, const Rule *rule, const Names *evals) {
    Kept found = {entry, false, 0, LLONG_MAX};
    const char *of;
    for (size_t i = 0; i < evals->size; i++) {
        long long attempt;
        if (strncmp(evals->at[i], entry, strlen(entry)) != 0) continue;
        if (!outcome_name(evals->at[i], &of, &attempt) || !equal(of, entry)) continue;
        Bytes outcome = record(outcome_path(entry, attempt));
        if (!is_text(get(outcome, "state"), "done")) continue;
        found.step = get_whole(outcome, "step", LLONG_MAX);
        for (Item item = {0}; next_item(get(outcome, "scores"), &item);)
            if (spells(item.key, rule->tag)) found.ranked = as_real(item.value, &found.score);
    }
    return found;
}

/* Strictly better: by score (NaN worst), then the earlier step, then the name. */
static bool is_better(const Kept *a, const Kept *b, bool max) {
    if (isnan(a->score) != isnan(b->score)) return isnan(b->score);
    if (a->score < b->score || a->score > b->score) return (a->score > b->score) == max;
    return a->step != b->step ? a->step < b->step : strcmp(a->entry, b->entry) < 0;
}

/* Whether `keep` entries of best/ are strictly better than one that is or could be there. */
static bool is_surplus(const char *entry, const Rule *rule) {
    Names names = names_in(IN_RUN("best")), evals = names_in(IN_RUN("evals"));
    Kept mine = kept(entry, rule, &evals);
    long long better = 0;
    for (size_t i = 0; i < names.size && mine.ranked && rule->keep > 0; i++, keep_alive()) {
        Kept other = kept(names.at[i], rule, &evals);
        better += is_entry(names.at[i]) && other.ranked && is_better(&other, &mine, rule->max);
    }
    return mine.ranked && rule->keep > 0 && better >= rule->keep;
}

static void prune(void) {
    Rule rule = find_rule();
    Names names = names_in(IN_RUN("best"));
    for (size_t i = 0; i < names.size && rule.there && (long long)names.size > rule.keep; i++)
        if (is_entry(names.at[i]) && is_surplus(names.at[i], &rule)) discard(run, text("best/%s", names.at[i]));
}

/* Moves a claim to best/: by a rename, or by a copy where its files have other names or the unit stands elsewhere. */
static void keep_entry(const Claim *claim, const Rule *rule) {
    const char *from = IN_UNIT("%s", claim_path(claim)), *to = text("best/%s", claim->entry);
    bool copies = unit != run;
    Files files = {0};
    look_at_all(from, "", &files);
    for (size_t i = 0; i < files.size; i++) copies = copies || files.at[i].shared;
    if (!copies) { carry(run, claim_path(claim), to, 0); return; }
    if (!is_surplus(claim->entry, rule) && !is_present(IN_RUN("%s", to)) && is_present(from)) {
        const char *temp = text("best/%s", hidden());
        leftover = IN_RUN("%s", temp);
        make_folders(run, "best");
        clone(from, leftover, false, NULL);
        carry(run, temp, to, 0);
    }
    discard(unit, claim_path(claim));
}

/* Moves a claim as the outcome that stands says (5.3); one that is gone was moved by another. */
static const char *move_claim(const Claim *claim, State state) {
    long long limit = state == FAILED_ATTEMPT ? 3 : state == LOST ? 10 : LLONG_MAX, count = 0;
    Rule rule = find_rule();
    if (state == DONE && rule.there) return keep_entry(claim, &rule), "best";
    if (state == DONE || state == SKIPPED) return discard(unit, claim_path(claim)), "trash";
    Names evals = names_in(IN_RUN("evals"));
    for (long long k = 1; k <= claim->attempt && limit < LLONG_MAX; k++) {
        const char *path = outcome_path(claim->entry, k);
        Standing before;
        count += has(&evals, last_part(path)) && understand(record(path), &before) && before.state == state;
    }
    const char *failed = text("failed/%s", claim->entry);
    carry(unit, claim_path(claim), count >= limit ? failed : waiting_path(claim->entry, claim->attempt + 1), 0);
    return count >= limit ? "failed" : "retry";
}

/* The whole of an outcome about a claim whose holder does not say more. */
static void bring_home(Claim claim, State state, const char *reason) {
    Outcome outcome = {.state = state, .reason = reason, .facts = facts_of(claim.entry)};
    Standing standing;
    if (settle(&claim, &outcome, &standing)) move_claim(&claim, standing.state);
}

/* ---- The evaluator's look ---- */

static bool is_evaluator;
typedef struct { Claim *at; size_t size, room; } Claims;

static Claims list_claims(void) {
    Claims claims = {0};
    Names folders = names_in(IN_UNIT("claimed"));
    for (size_t i = 0; i < folders.size; i++) {
        Claim claim;
        const char *parts[6];
        if (split(folders.at[i], parts) != 2 || !is_job(claim.job = parts[0]) || !as_count(parts[1], &claim.session))
            continue;
        Names attempts = names_in(IN_UNIT("claimed/%s", folders.at[i]));
        for (size_t j = 0; j < attempts.size; j++) {
            if (!as_count(attempts.at[j], &claim.attempt)) continue;
            Names entries = names_in(IN_UNIT("claimed/%s/%s", folders.at[i], attempts.at[j]));
            for (size_t k = 0; k < entries.size; k++) {
                claim.entry = entries.at[k];
                if (is_entry(claim.entry)) PUSH(claims, claim);
            }
        }
    }
    return claims;
}

/* Removes the empty claim folders of a session; others stay. */
static void clear_claims(const char *job, long long session) {
    const char *folder = IN_UNIT("claimed/%s.%lld", job, session);
    Names attempts = names_in(folder);
    for (size_t i = 0; i < attempts.size; i++) rmdir(below(folder, "%s", attempts.at[i]));
    rmdir(folder);
}

/* How long until the next look at those that are watched. */
static double watch_pause(void) {
    double pause = me.timeout / 6;
    for (const Watch *watch = watches; watch != NULL; watch = watch->next)
        if (watch->session > 0 && watch->timeout / 6 < pause) pause = watch->timeout / 6;
    return pause;
}

/* Closes what is dead or expired of them. */
static void look_at_watches(void) {
    double started = now();
    Names jobs = jobs_now();
    double ended = now();
    Verdict verdict;
    for (Watch *watch = watches; watch != NULL; watch = watch->next) {
        if (!watch->wanted || is_closed(&jobs, watch->job, watch->session)) watch->session = 0;
        if (watch->session > 0) close_if_over(watch_of(watch->job, watch->session), started, ended, &jobs, &verdict);
    }
}

/* Recovers the claims of closed sessions (5.5) and brings home own ones that an error left behind. Says whether
 * somebody holds a claim, and whether a side job that hands over is open (5.8). */
static void recover(bool *others, bool *coming) {
    Names jobs = jobs_now();
    Claims claims = list_claims();
    for (Watch *watch = watches; watch != NULL; watch = watch->next) watch->wanted = watch->hands_over = false;
    for (size_t i = 0; i < jobs.size; i++) {
        JobFile file = job_file(jobs.at[i]);
        if (file.kind != LOCK || is_closed(&jobs, file.job, file.session) || equal(file.job, me.job)) continue;
        bool hands_over = spells(get(peek_lock(file.job, file.session), "hands_over"), "true");
        bool wanted = hands_over || equal(file.job, "main");
        for (size_t j = 0; j < claims.size; j++)
            wanted = wanted || (claims.at[j].session == file.session && equal(claims.at[j].job, file.job));
        if (!wanted) continue;
        Watch *watch = watch_of(file.job, file.session);
        watch->wanted = true;
        watch->hands_over = hands_over && !equal(file.job, "main");
    }
    look_at_watches();
    jobs = jobs_now();
    *others = *coming = false;
    for (size_t i = 0; i < claims.size; i++) {
        const Claim *claim = &claims.at[i];
        if (is_own(claim)) {
            if (!held.there || !equal(held.claim.entry, claim->entry)) bring_home(*claim, RETURNED, "left by an error");
        } else if (is_closed(&jobs, claim->job, claim->session)) {
            bring_home(*claim, LOST, "its evaluator was closed");
            clear_claims(claim->job, claim->session);
        } else {
            *others = true;
        }
    }
    for (const Watch *watch = watches; watch != NULL; watch = watch->next)
        *coming = *coming || (watch->session > 0 && watch->hands_over);
}

/* `tried`: it failed or was lost before: that may happen again, so it comes after all else. */
typedef struct { const char *entry; long long attempt; bool tried; Facts facts; } Waiting;
typedef struct { Waiting *at; size_t size, room; } Queue;

static int by_turn(const void *a, const void *b) {
    const Waiting *x = a, *y = b;
    int order = x->tried - y->tried;
    if (order == 0) order = (x->facts.step == NONE) - (y->facts.step == NONE);
    if (order == 0) order = by_number(x->facts.step, y->facts.step);
    if (order == 0) order = by_number(x->facts.main_session, y->facts.main_session);
    if (order == 0) order = by_number(x->facts.order, y->facts.order);
    return order != 0 ? order : strcmp(x->entry, y->entry);
}

/* What waits, in the order in which it is evaluated. */
static Queue list_waiting(void) {
    Names folders = names_in(IN_UNIT("retry")), names;
    Queue all = {0};
    Standing before;
    PUSH(folders, "1"); /* stands for queue/ */
    for (size_t i = 0; i < folders.size; i++) {
        Waiting one = {0};
        bool is_queue = i + 1 == folders.size;
        if (!as_count(folders.at[i], &one.attempt) || (one.attempt == 1 && !is_queue)) continue;
        bool there = list(IN_UNIT("%s", is_queue ? "queue" : text("retry/%s", folders.at[i])), &names);
        bool reached = unit == run || !is_queue; /* else not being there is not being empty (2) */
        if (!there && (!reached || !is_absent(errno))) fail_at(unit);
        for (size_t j = 0; j < names.size; j++) {
            if (!is_entry(one.entry = names.at[j])) continue;
            one.tried = one.attempt > 1 && !(understand(record(outcome_path(one.entry, one.attempt - 1)), &before) &&
                                             before.state == RETURNED);
            one.facts = facts_of(one.entry);
            PUSH(all, one);
        }
    }
    sort(all.at, all.size, sizeof *all.at, by_turn);
    return all;
}

/* One rename claims (5.2); false: another was faster. Two files may have one name: a first outcome that stands is about
 * an earlier one, and where this very session claimed that, the second one may not even come to the same path. */
static bool claim_entry(const Waiting *waiting, Claim *claim) {
    const char *from = waiting_path(waiting->entry, waiting->attempt);
    bool is_first = waiting->attempt == 1;
    Standing standing;
    *claim = (Claim){me.job, waiting->entry, me.session, waiting->attempt};
    bool is_second = is_first && find_standing(claim->entry, 1, &standing) && is_about(&standing, claim);
    if (is_second) claim->entry = reserve_next(waiting->entry, from);
    if (!carry(unit, from, claim_path(claim), claim->session)) return false;
    bool is_other = is_first && !is_second && find_standing(claim->entry, 1, &standing) && !is_about(&standing, claim);
    return !is_other || next_name(claim);
}

/* Status of the highest session of a job (4.8), and the reason of its end or NULL. */
static const char *status_of(const Names *jobs, const char *job, long long session, const char **reason) {
    bool ended = stands(jobs, "end", job, session);
    Bytes end = ended ? record(job_path(job, session, "end")) : none, status = get(end, "status");
    *reason = as_text(get(end, "reason"));
    const char *how = is_text(status, "finished") ? "finished" : is_text(status, "failed") ? "failed" : "crashed";
    return ended ? how : "running";
}

/* The last step that main has logged, in the newest session that logged any, or NONE. */
static long long last_step(const Names *jobs) {
    Names logs = names_in(IN_RUN("scalars"));
    for (long long n = highest(jobs, "main"), step; n > 0; n--) {
        const char *log = text("main.%lld.jsonl", n), *newline;
        Bytes tail;
        if (!has(&logs, log) || !read_file(IN_RUN("scalars/%s", log), -(1 << 16), 1 << 16, &tail)) continue;
        long long found = NONE;
        for (const char *at = tail.at; (newline = strchr(at, '\n')) != NULL; at = newline + 1) {
            Bytes line = bytes(text("%.*s", (int)(newline - at), at));
            if (as_whole(get(parse(line, true), "step"), &step)) found = step;
        }
        if (found != NONE) return found;
    }
    return NONE;
}

/* Whether FINISHED stands and is obeyed (5.8). */
static bool is_finished(const Names *jobs) {
    const char *path = IN_UNIT("queue/FINISHED"), *reason;
    long long main = highest(jobs, "main"), named;
    Bytes found;
    if (!is_present(path) || !read_file(path, 0, 1, &found)) return false;
    if (main == 0) return true;
    named = get_whole(record(path), "main_session", 0);
    return named > 0 ? named == main : equal(status_of(jobs, "main", main, &reason), "finished");
}

/* Whether an evaluator that found nothing to do may end (5.8). */
static bool may_end(bool others, bool coming) {
    static long long gone; /* the session of main that is gone, and since when this process knows */
    static double since;
    Names jobs = jobs_now();
    long long main = highest(&jobs, "main");
    const char *reason, *status = main > 0 ? status_of(&jobs, "main", main, &reason) : "running";
    bool finished = equal(status, "finished"), is_gone = !finished && !equal(status, "running");
    if (!is_gone || gone != main) since = now();
    gone = is_gone ? main : 0;
    bool silent = is_gone && now() - since >= (4 * me.timeout > LINGER ? 4 * me.timeout : LINGER);
    return !coming && ((!others && (finished || is_finished(&jobs))) || silent);
}

/* Takes over into the session that continues what its predecessor had claimed (5.4), and writes FINISHED again. */
static void catch_up(void) {
    if (me.state != OPEN) return;
    if (me.finished != 0 && me.finished != me.session) write_finished();
    if (!held.there || held.place != NULL || held.claim.session == me.session) return;
    Claim claim = held.claim;
    Outcome outcome = {.state = RETURNED, .reason = "adopted", .facts = held.facts};
    Standing standing;
    held.place = "retry"; /* unless it comes along */
    if (!settle(&claim, &outcome, &standing)) return;
    Claim next = {me.job, keep(claim.entry), me.session, claim.attempt + 1};
    if (standing.state != RETURNED) {
        held.place = move_claim(&claim, standing.state);
    } else if (carry(unit, claim_path(&claim), claim_path(&next), next.session)) {
        held.claim = next;
        held.place = NULL;
    }
}

/* What is done while nothing is asked: a beat, and a look at those that are watched. */
static void tend(void) {
    static double looked;
    if (setjmp(back) == 0) {
        keep_alive();
        catch_up();
        if (me.state == OPEN && is_evaluator && now() - looked >= watch_pause()) {
            looked = now();
            look_at_watches();
        }
    }
    clean_up();
}

/* ---- What a run folder says (8) ---- */

typedef struct {
    Bytes tag;
    enum { MAIN, SIDE, OUTCOME } of;
    enum { GOOD, NOTHING, FAULTY } is;
    const char *job, *key;           /* key: `<entry>.<k>` of an outcome */
    long long step, session, piece;  /* piece -1: the session's log, else of its spill */
    long long group, order, attempt; /* group: of main's sessions; of an outcome these say how it was handed over */
    double time, value;              /* time -INFINITY: none */
    size_t row;                      /* as they were read */
    bool out;                        /* it is void, or does not stand */
} Point;

static struct { Point *at; size_t size, room; } points;

/* An outcome. group: of the main session that handed its entry over, -1: not known. record: none where it is not there
 * yet, or not understood. lined: a log has a line of it. */
typedef struct { const char *entry; long long attempt, group, order; Bytes record; Standing is; bool lined; } Found;

static struct { Found *at; size_t size; } outcomes;

static int by_attempt(const void *a, const void *b) {
    const Found *x = a, *y = b;
    int order = strcmp(x->entry, y->entry);
    return order != 0 ? order : by_number(x->attempt, y->attempt);
}

static Found *find_outcome(const char *key) {
    Found wanted = {0};
    bool good = outcomes.size > 0 && read_key(key, &wanted.entry, &wanted.attempt);
    return good ? bsearch(&wanted, outcomes.at, outcomes.size, sizeof wanted, by_attempt) : NULL;
}

/* By tag and step; then main's points, those of side jobs by job, those of outcomes by hand-over: the last counts. */
static int by_counting(const void *a, const void *b) {
    const Point *x = a, *y = b;
    int order = compare(x->tag, y->tag);
    if (order == 0) order = by_number(x->step, y->step);
    if (order == 0) order = by_number(x->of, y->of);
    if (order == 0 && x->of == OUTCOME) order = by_number(x->group, y->group);
    if (order == 0 && x->of == OUTCOME) order = by_number(x->order, y->order);
    if (order == 0 && x->of == OUTCOME) order = by_number(x->attempt, y->attempt);
    if (order == 0 && x->of != OUTCOME) order = strcmp(x->job, y->job);
    if (order == 0) order = by_number(x->session, y->session);
    if (order == 0) order = by_number(x->piece, y->piece);
    return order != 0 ? order : x->row < y->row ? -1 : 1;
}

/* Sessions of main that `continues` joins count as one (4.6): the first of them. */
static long long group_of(const Names *jobs, long long session) {
    while (stands(jobs, "lock", "main", session) && spells(get(peek_lock("main", session), "continues"), "true"))
        session--;
    return session;
}

/* How many bytes of a session's log the lock of the next one counts (4.7). */
static long long fence_of(const Names *jobs, const char *job, long long session, const char *log) {
    bool later = stands(jobs, "lock", job, session + 1);
    Bytes fence = later ? get(peek_lock(job, session + 1), "fence") : none;
    return is_object(fence) ? get_whole(fence, log, 0) : LLONG_MAX;
}

static double time_of(Bytes record) {
    double time = -INFINITY;
    if (is_number(get(record, "time"))) as_real(get(record, "time"), &time);
    return time;
}

/* Adds the points of a line, or of the scores of an outcome; the last of a key counts. False: one is no value. */
static bool add_points(Bytes object, Point point, bool is_line) {
    size_t from = points.size, to = from;
    bool good = true;
    for (Item item = {0}; next_item(object, &item);) {
        if (is_line && (spells(item.key, "step") || spells(item.key, "time") || spells(item.key, "entry"))) continue;
        point.tag = item.key;
        point.is = is_none(item.value) ? NOTHING : as_real(item.value, &point.value) ? GOOD : FAULTY;
        point.row = points.size;
        PUSH(points, point);
    }
    if (points.size == from) return true;
    sort(points.at + from, points.size - from, sizeof point, by_counting);
    for (size_t i = from; i < points.size; i++) {
        if (i + 1 < points.size && compare(points.at[i].tag, points.at[i + 1].tag) == 0) continue;
        good = good && points.at[i].is != FAULTY;
        if (points.at[i].is == GOOD) points.at[to++] = points.at[i];
    }
    points.size = to;
    return good;
}

/* Reads one line (8.2); false: it, or a value of it, is skipped. */
static bool read_line(Bytes line, Point point) {
    Bytes record = parse(line, true), entry = get(record, "entry");
    if (!is_object(record) || !as_whole(get(record, "step"), &point.step)) return false;
    if (!is_none(entry) && *entry.at != '"') return false;
    if (!is_none(entry)) point.of = OUTCOME;
    point.key = as_text(entry) != NULL ? as_text(entry) : ""; /* with a NUL in it that of none */
    point.time = time_of(record);
    return add_points(record, point, true);
}

/* Reads the complete lines of `<job>.<n>.jsonl` or `<job>.<n>.s<i>.jsonl` that count, and adds the numbers of those
 * that were skipped. */
static void read_log(const Names *jobs, const char *name, Buffer *skipped) {
    const char *log = text("scalars/%s", name), *parts[6], *before = NULL;
    int count = split(name, parts);
    Point point = {.job = parts[0], .piece = -1};
    bool is_spill = count == 4 && parts[2][0] == 's' && as_number(parts[2] + 1, &point.piece);
    if ((count != 3 && !is_spill) || !equal(parts[count - 1], "jsonl") || !is_job(point.job)) return;
    if (!as_count(parts[1], &point.session)) return;
    point.of = equal(point.job, "main") ? MAIN : SIDE;
    point.group = point.of == MAIN ? group_of(jobs, point.session) : 0;
    long long limit = is_spill ? LLONG_MAX : fence_of(jobs, point.job, point.session, log), number = 1;
    Bytes all;
    if (!read_file(IN_RUN("%s", log), 0, limit, &all)) return;
    const char *at = all.at + (strncmp(all.at, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
    for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1, number++) {
        *end = '\0';
        if (at + strspn(at, " \t\r") == end || read_line((Bytes){at, (size_t)(end - at)}, point)) continue;
        if (before == NULL) add(skipped, "%s\"%s\":[", skipped->size > 0 ? "," : "", log);
        add(skipped, "%s%lld", before == NULL ? "" : ",", number);
        before = at;
    }
    if (before != NULL) add(skipped, "]");
}

static void read_outcomes(const Names *jobs) {
    Names evals = names_in(IN_RUN("evals"));
    outcomes.at = take_room(&scratch, (evals.size + 1) * sizeof *outcomes.at);
    outcomes.size = 0;
    for (size_t i = 0; i < evals.size; i++) {
        Found found = {0};
        if (!outcome_name(evals.at[i], &found.entry, &found.attempt)) continue;
        found.record = peek_record(IN_RUN("evals/%s", evals.at[i]));
        if (!understand(found.record, &found.is)) found.record = none;
        long long main = get_whole(found.record, "main_session", 0);
        found.group = main > 0 ? group_of(jobs, main) : -1;
        found.order = get_whole(found.record, "order", 0);
        outcomes.at[outcomes.size++] = found;
    }
    sort(outcomes.at, outcomes.size, sizeof *outcomes.at, by_attempt);
}

/* Lines of outcomes that do not stand are ignored; of `done` ones that have no line the scores are points (5.9). */
static void add_outcome_points(void) {
    for (size_t i = 0; i < points.size; i++) {
        Point *point = &points.at[i];
        Found *found = point->of == OUTCOME ? find_outcome(point->key) : NULL;
        point->out = point->of == OUTCOME && found == NULL;
        if (found == NULL) continue;
        found->lined = true;
        point->group = found->group;
        point->order = found->order;
        point->attempt = found->attempt;
    }
    for (size_t i = 0; i < outcomes.size; i++) {
        const Found *found = &outcomes.at[i];
        Point point = {.of = OUTCOME, .job = found->is.job, .session = found->is.session, .group = found->group,
                       .order = found->order, .attempt = found->attempt, .time = time_of(found->record), .piece = -1};
        bool has_step = as_whole(get(found->record, "step"), &point.step);
        if (!has_step || found->lined || found->is.state != DONE) continue;
        add_points(get(found->record, "scores"), point, false);
    }
}

/* A main session voids the points of older ones, tag by tag, from its own first step of the tag on (8.3). Points stand
 * by tag and step, so that the highest session seen of a tag is the latest one that began at or before a step. */
static void void_by_resumed_mains(void) {
    Point *at = points.at;
    long long latest = 0;
    for (size_t i = 0, end; i < points.size; i = end) {
        if (i == 0 || compare(at[i].tag, at[i - 1].tag) != 0) latest = 0;
        for (end = i; end < points.size && compare(at[end].tag, at[i].tag) == 0 && at[end].step == at[i].step; end++)
            if (at[end].of == MAIN && at[end].group > latest) latest = at[end].group;
        for (size_t j = i; j < end; j++) at[j].out = at[j].out || (at[j].of == MAIN && at[j].group < latest);
    }
}

static int by_history(const void *a, const void *b) {
    const Point *x = *(Point *const *)a, *y = *(Point *const *)b;
    int order = by_number(x->group, y->group);
    if (order == 0) order = by_number(x->step, y->step);
    return order != 0 ? order : x->out - y->out;
}

/* An outcome shares the fate of what its main session had logged last by then. */
static void void_outcomes(void) {
    const Point **history = take_room(&scratch, (points.size + 1) * sizeof *history);
    size_t count = 0;
    for (size_t i = 0; i < points.size; i++)
        if (points.at[i].of == MAIN) history[count++] = &points.at[i];
    sort(history, count, sizeof *history, by_history);
    for (size_t i = 0; i < points.size; i++) {
        Point *point = &points.at[i];
        size_t low = 0, high = point->of == OUTCOME ? count : 0;
        while (low < high) { /* behind the last one that is not above the outcome's step */
            const Point *middle = history[(low + high) / 2];
            bool is_it = middle->group < point->group || (middle->group == point->group && middle->step <= point->step);
            if (is_it) low = (low + high) / 2 + 1;
            else high = (low + high) / 2;
        }
        if (low > 0 && history[low - 1]->group == point->group)
            point->out = point->out || history[low - 1]->out; /* of equal steps the void ones stand last */
    }
}

/* Adds the points of one tag that count. Those of a job, and those of outcomes, are settled among each other first. */
static void add_series(Buffer *out, const Point *at, size_t size) {
    size_t first = 0; /* from its step on the values beside main's replace those */
    bool any = false;
    while (first < size && (at[first].of == MAIN || at[first].out)) first++;
    for (size_t i = 0, end = 0; i < size; i = end) {
        const Point *winner = NULL;
        while (end < size && at[end].step == at[i].step) {
            const Point *last = NULL, *of = &at[end];
            for (; end < size && at[end].step == at[i].step && at[end].of == of->of; end++) {
                if (of->of != OUTCOME && !equal(at[end].job, of->job)) break;
                if (!at[end].out && (of->of != MAIN || first == size || of->step < at[first].step)) last = &at[end];
            }
            if (last != NULL && (winner == NULL || last->time >= winner->time)) winner = last;
        }
        if (winner == NULL) continue;
        add(out, "%s", any || out->size == 0 ? "" : ",");
        if (!any) add_text(out, winner->tag);
        add(out, "%s[%lld,", any ? "," : ":[", winner->step);
        add_real(out, winner->value);
        add(out, "]");
        any = true;
    }
    if (any) add(out, "]");
}

/* What stands where: in the first of these places, where an entry is in two. */
static const char *const places[] = {"claimed", "retry", "queue", "failed", "best"};
typedef struct { Names of[5]; } Look;

static Look look_at_places(void) {
    Look look = {.of[2] = names_in(IN_UNIT("queue"))};
    Names retry = names_in(IN_UNIT("retry")), names;
    long long attempt;
    for (size_t i = 0; i < retry.size; i++) {
        names = as_count(retry.at[i], &attempt) ? names_in(IN_UNIT("retry/%s", retry.at[i])) : (Names){0};
        for (size_t j = 0; j < names.size; j++) PUSH(look.of[1], names.at[j]);
    }
    Claims claims = list_claims();
    for (size_t i = 0; i < claims.size; i++) PUSH(look.of[0], claims.at[i].entry);
    look.of[3] = names_in(IN_UNIT("failed"));
    look.of[4] = names_in(IN_RUN("best"));
    for (size_t i = 0; i < 2; i++) sort(look.of[i].at, look.of[i].size, sizeof(char *), by_name);
    return look;
}

/* An entry that moves may be missed by one look, so there are two; the second counts (9). */
static void add_entries(Buffer *out, const Look looks[2]) {
    Names all = {0}, metas = names_in(IN_UNIT("meta"));
    const char *comma = "";
    size_t next = 0;
    for (size_t i = 0; i < metas.size; i++)
        if (ends_with(metas.at[i], ".json")) PUSH(all, without(metas.at[i], 5));
    for (size_t i = 0; i < outcomes.size; i++) PUSH(all, outcomes.at[i].entry);
    for (size_t i = 0; i < 10; i++)
        for (size_t j = 0; j < looks[i / 5].of[i % 5].size; j++) PUSH(all, looks[i / 5].of[i % 5].at[j]);
    sort(all.at, all.size, sizeof *all.at, by_name);
    for (size_t i = 0; i < all.size; i++) {
        const char *entry = all.at[i], *place = NULL;
        if (!is_entry(entry) || (i > 0 && equal(entry, all.at[i - 1]))) continue;
        for (size_t j = 0; j < 10; j++)
            if (has(&looks[j / 5].of[4 - j % 5], entry)) place = places[4 - j % 5];
        add(out, "%s", comma);
        add_text(out, bytes(entry));
        add(out, ":{\"place\":%s,\"outcomes\":{", place != NULL ? text("\"%s\"", place) : "null");
        for (comma = ""; next < outcomes.size && equal(outcomes.at[next].entry, entry); next++) {
            const Found *found = &outcomes.at[next];
            if (found->record.at == NULL) continue;
            add(out, "%s\"%lld\":\"%s\"", comma, found->attempt, state_names[found->is.state]);
            comma = ",";
        }
        add(out, "}}");
        comma = ",";
    }
}

/* One look; false: a session was opened meanwhile, whose fence may void what was read (8.4). */
static bool read_run(Buffer *out) {
    Names jobs = jobs_now(), again;
    Buffer of_jobs = {0}, of_points = {0}, skipped = {0}, entries = {0};
    bool writable = true, same = true;
    for (size_t i = 0; i < jobs.size; i++) {
        JobFile file = job_file(jobs.at[i]);
        if (file.kind != LOCK) continue;
        writable = writable && refusal(peek_lock(file.job, file.session)) == NULL;
        if (highest(&jobs, file.job) != file.session) continue;
        const char *reason, *status = status_of(&jobs, file.job, file.session, &reason);
        add(&of_jobs, "%s\"%s\":{\"session\":%lld", of_jobs.size > 0 ? "," : "", file.job, file.session);
        add_pair(&of_jobs, "status", status);
        add_pair(&of_jobs, "reason", reason);
        add(&of_jobs, "}");
    }
    Look looks[2];
    points.size = 0;
    Names logs = names_in(IN_RUN("scalars"));
    for (size_t i = 0; i < logs.size; i++) read_log(&jobs, logs.at[i], &skipped);
    unit = find_unit(main_lock(&jobs));
    if (unit != NULL) looks[0] = look_at_places();
    read_outcomes(&jobs); /* after the logs, since an outcome stands before its line is logged (8.4) */
    add_outcome_points();
    sort(points.at, points.size, sizeof *points.at, by_counting);
    void_by_resumed_mains();
    void_outcomes();
    for (size_t i = 0, end; i < points.size; i = end) {
        for (end = i; end < points.size && compare(points.at[end].tag, points.at[i].tag) == 0; end++) continue;
        add_series(&of_points, &points.at[i], end - i);
    }
    if (unit != NULL) looks[1] = look_at_places();
    if (unit != NULL) add_entries(&entries, looks);
    add(out, "{\"writable\":%s,\"jobs\":{%s},", writable ? "true" : "false", content(&of_jobs).at);
    add(out, "\"points\":{%s},\"skipped\":{%s},", content(&of_points).at, content(&skipped).at);
    if (unit == NULL) add(out, "\"entries\":null,\"finished\":null}\n"); /* unreachable is never empty (2) */
    else add(out, "\"entries\":{%s},\"finished\":%s}\n", content(&entries).at, is_finished(&jobs) ? "true" : "false");
    again = jobs_now();
    for (size_t i = 0; i < again.size; i++)
        same = same && (job_file(again.at[i]).kind != LOCK || has(&jobs, again.at[i]));
    return same;
}

/* ---- The commands (docs/clients.md) ---- */

static char **field; /* of the command */
static size_t fields;

LIKE_PRINTF(1, 2) static void answer(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    putchar('\n');
    fflush(stdout);
}

static long long whole_field(size_t i) {
    long long whole;
    if (!as_whole(parse(bytes(field[i]), false), &whole)) fail("%s is no whole number", field[i]);
    return whole;
}

/* What a restart does not say again stays as it was: the keys of main's last lock, as they are written. */
static const char *said_again(Bytes last) {
    static const char *const keys[] = {"project", "run", "name", "config", "unit"};
    Buffer said = {0};
    for (size_t i = 0; i < 5; i++) {
        Bytes value = get(last, keys[i]);
        if (value.at != NULL) add(&said, ",\"%s\":%.*s", keys[i], (int)value.size, value.at);
    }
    return keep(content(&said).at);
}

/* Opens the next session once its predecessor is closed, which is watched until then (4.4); else the one that lives. */
static const Watch *succeed(void) {
    for (double pause = 0.02;; nap(pause)) {
        Names jobs;
        Verdict verdict;
        double started = now();
        if (!list(IN_RUN("jobs"), &jobs)) fail_at(IN_RUN("jobs"));
        double ended = now();
        long long last = highest(&jobs, me.job);
        me.session = last + 1; /* in the names of temporaries */
        if (last == 0 || is_closed(&jobs, me.job, last)) {
            int ours = open_session(last + 1, last > 0 ? fence_over(last) : "null", false);
            if (ours < 0) fail_at(IN_RUN("jobs"));
            if (ours == 1) return NULL;
        } else {
            Watch *watch = watch_of(me.job, last);
            pause = watch->timeout / 30 > 1 ? 1 : watch->timeout / 30 > 0.02 ? watch->timeout / 30 : 0.02;
            bool closed = close_if_over(watch, started, ended, &jobs, &verdict);
            if (!closed && verdict == ALIVE) return watch;
        }
    }
}

static void command_open(void) {
    static const char *const folders[] = {"jobs",    "scalars", "evals",  "files", "queue", "meta",
                                          "claimed", "retry",   "failed", "trash", "best"};
    const char *job = field[1];
    bool is_main = equal(job, "main"), timed = as_real(parse(bytes(field[2]), false), &me.timeout);
    if (me.state != UNOPENED) fail("a session was opened before");
    if (!is_job(job)) fail("%s is no name of a job", job);
    if (!timed || !(me.timeout >= 0.2 && me.timeout <= 86400)) fail("%s is no time of 0.2 to 86400 seconds", field[2]);
    me.timeout_text = keep(field[2]);
    strcpy(me.job, job);
    Names jobs = jobs_now();
    long long mains = highest(&jobs, "main");
    const char *why = !is_main && mains == 0 ? "main was not opened yet" : NULL;
    for (size_t i = 0; i < jobs.size && why == NULL; i++) {
        JobFile file = job_file(jobs.at[i]);
        if (file.kind == LOCK) why = refusal(peek_lock(file.job, file.session));
    }
    if (why != NULL) { answer("refused\t%s", why); return; }
    for (size_t i = 0; i < 4 && is_main && mains == 0; i++) /* never again after that (4.1) */
        make_folders("", text("%s/%s", run + 1, folders[i]));
    const char *found = find_unit(main_lock(&jobs));
    if (found == NULL) fail("the hand-over unit cannot be reached");
    unit = found == run ? run : keep(found);
    for (size_t i = 4; i < 11 && is_main && unit == run; i++) make_folders(run, folders[i]);
    me.carried = is_main ? said_again(main_lock(&jobs)) : "";
    const Watch *living = succeed();
    if (living != NULL) {
        Bytes holder = get(living->lock, "holder");
        const char *host = as_text(get(holder, "host"));
        answer("held\t%s\t%lld", host != NULL && host[0] != '\0' ? host : "unknown", get_whole(holder, "pid", 0));
        return;
    }
    sweep(job);
    if (is_main && is_present(IN_UNIT("queue/FINISHED"))) /* a new main process hands over again (5.8) */
        discard(unit, "queue/FINISHED");
    answer("opened\t%lld", me.session);
}

static void command_beat(void) {
    long long before = me.session;
    beat();
    if (me.state == FENCED) leave();
    if (me.state != OPEN || (me.session == before && me.doubt > 0)) fail("%s: no beat is possible", run);
    answer("beaten\t%lld", me.count);
}

static bool is_tag(const char *tag) {
    return is_clean(tag, MAX_TAG) && !equal(tag, "step") && !equal(tag, "time") && !equal(tag, "entry");
}

/* `"TAG":VALUE` for each pair of fields from one on, with a comma before each but the first. */
static const char *scores_of(size_t from) {
    Buffer out = {0};
    if ((fields - from) % 2 != 0) fail("a tag has no value");
    for (size_t i = from; i < fields; i += 2) {
        Bytes value = parse(bytes(field[i + 1]), true);
        double real;
        if (!is_tag(field[i])) fail("%s is no tag", field[i]);
        if (field[i + 1][0] == '"' || !as_real(value, &real)) fail("%s is no number", field[i + 1]);
        add(&out, i > from ? "," : "");
        add_text(&out, bytes(field[i]));
        add(&out, ":");
        if (isfinite(real)) add_bytes(&out, value.at, value.size); /* its digits say more than a double */
        else add_real(&out, real);
    }
    return content(&out).at;
}

static void command_log(void) {
    long long step = whole_field(1);
    const char *scores = scores_of(3);
    Buffer line = {0};
    if (!is_number(parse(bytes(field[2]), false))) fail("%s is no time", field[2]);
    add(&line, "{\"step\":%lld,\"time\":%s%s%s}\n", step, field[2], scores[0] != '\0' ? "," : "", scores);
    log_line(&line);
    answer("logged");
}

static void command_enqueue(void) {
    if (!equal(me.job, "main")) fail("only main hands over");
    if (!is_entry(field[2])) fail("%s is no name of an entry", field[2]);
    answer("enqueued\t%s", enqueue(field[1], field[2], whole_field(3)));
}

static void command_finish(void) {
    if (!equal(me.job, "main")) fail("only main hands over");
    write_finished();
    answer("finished");
}

static void command_best(void) {
    const char *mode = field[1], *tag = field[2];
    long long keeps = whole_field(3);
    if ((!equal(mode, "max") && !equal(mode, "min")) || !is_tag(tag) || keeps < 0) fail("this is no rule");
    if (!find_rule().there) {
        Buffer record = {0};
        add(&record, BEGIN ",\"mode\":\"%s\",\"keep\":%lld", mode, keeps);
        add_pair(&record, "tag", tag);
        add(&record, "}\n");
        must_put(IN_RUN("best.json"), content(&record));
    }
    Rule rule = find_rule();
    bool same = rule.max == equal(mode, "max") && equal(rule.tag, tag) && rule.keep == keeps;
    answer(same ? "ruled" : "refused\tthe run has another rule");
}

/* Claims what is next and is as it was handed over; false: nothing is left of this look. */
static bool take(void) {
    Queue waiting = list_waiting();
    for (size_t i = 0; i < waiting.size; i++) {
        Claim claim;
        if (!claim_entry(&waiting.at[i], &claim)) continue;
        Bytes handed_over = read_meta(claim.entry);
        if (is_changed(IN_UNIT("%s", claim_path(&claim)), handed_over)) {
            bring_home(claim, FAILED_ATTEMPT, "changed");
            continue;
        }
        Names jobs = jobs_now();
        claim.entry = keep(claim.entry);
        held.claim = claim;
        held.facts = facts_of(claim.entry);
        if (held.facts.step == NONE) held.facts.step = last_step(&jobs); /* the claimant alone knows (5.9) */
        if (held.facts.order == NONE) held.facts.order = wall_ns();
        if (handed_over.at == NULL && highest(&jobs, "main") > 0) held.facts.main_session = highest(&jobs, "main");
        held.place = NULL;
        return held.there = true;
    }
    return false;
}

static void command_take(void) {
    bool others, coming, over = true;
    if (held.there) fail("%s is claimed and has no outcome yet", held.claim.entry);
    if (!is_evaluator) {
        is_evaluator = true;
        empty_trash(unit);
        empty_trash(run);
        prune();
    }
    for (int looks = 0; looks < 2 && over; looks++) { /* one look misses an entry on its way to retry/ */
        recover(&others, &coming);
        if (take()) {
            const char *path = IN_UNIT("%s", claim_path(&held.claim));
            answer("taken\t%s\t%lld\t%s", held.claim.entry, held.claim.attempt, path);
            return;
        }
        over = list_waiting().size == 0 && may_end(others, coming);
    }
    answer(over ? "over" : "none");
}

static void command_outcome(void) {
    Outcome outcome = {.facts = held.facts, .time = (double)wall_ns() / 1e9};
    Standing standing;
    if (!held.there) fail("nothing is claimed");
    while (outcome.state < STATES && !equal(field[1], state_names[outcome.state])) outcome.state++;
    bool good = outcome.state != STATES && outcome.state != LOST; /* and the others have a reason */
    if (outcome.state == FAILED_ATTEMPT || outcome.state == SKIPPED) good = fields == 3;
    if (!good) fail("%s is no outcome", field[1]);
    if (outcome.state == DONE) outcome.scores = scores_of(2);
    else outcome.reason = fields > 2 ? field[2] : NULL;
    held.there = false;
    if (held.place != NULL) { /* taken for dead meanwhile: another outcome stands */
        answer("moved\t%s", held.place);
        return;
    }
    Claim claim = held.claim;
    const char *path = IN_UNIT("%s", claim_path(&claim));
    if (outcome.state == DONE && is_present(path) && is_changed(path, read_meta(claim.entry))) /* once more (5.1) */
        outcome = (Outcome){FAILED_ATTEMPT, "changed", NULL, held.facts, outcome.time};
    if (!settle(&claim, &outcome, &standing)) fail("%s was taken away", claim.entry);
    const char *place = move_claim(&claim, standing.state);
    if (standing.state == DONE && outcome.state == DONE) {
        Buffer line = {0}; /* a copy for people and fast readers (5.9) */
        add(&line, "{\"step\":%lld,\"time\":%.6f,%s", outcome.facts.step, outcome.time, outcome.scores);
        add_pair(&line, "entry", text("%s.%lld", claim.entry, claim.attempt));
        add(&line, "}\n");
        if (outcome.facts.step != NONE && outcome.scores[0] != '\0') log_line(&line);
        prune();
    }
    answer("moved\t%s", place);
}

/* Puts the own end (4.3); where a false verdict was faster, that of the session which goes on. */
static void close_own(const char *status, const char *reason) {
    held.there = false;
    if (is_evaluator) { /* claims are given back first */
        Claims claims = list_claims();
        for (size_t i = 0; i < claims.size; i++)
            if (is_own(&claims.at[i])) bring_home(claims.at[i], RETURNED, "the evaluator ended");
        prune();
        empty_trash(unit);
        clear_claims(me.job, me.session);
    }
    for (double began = now(); now() - began < GIVE_UP; nap(me.timeout / 30)) {
        look_at_session(now());
        if (me.state == FENCED) leave();
        if (me.state == GONE && now() - began > me.timeout / 6) break; /* else a mount may come back */
        if (me.state != OPEN) continue;
        me.ending = true; /* whoever sees the end may open the next session before this call has returned */
        if (put_end(me.job, me.session, true, status, reason) == 1) {
            me.state = CLOSED;
            sweep(me.job);
            return;
        }
    }
    fail("%s: the end cannot be put", run);
}

static void command_close(void) {
    if (!equal(field[1], "finished") && !equal(field[1], "failed")) fail("%s is no status", field[1]);
    close_own(field[1], fields > 2 ? field[2] : NULL);
    answer("closed");
}

static const struct { const char *name; size_t least, most; void (*obey)(void); } commands[] = {
    {"open", 3, 3, command_open},         {"beat", 1, 1, command_beat},   {"log", 3, SIZE_MAX, command_log},
    {"enqueue", 4, 4, command_enqueue},   {"finish", 1, 1, command_finish}, {"best", 4, 4, command_best},
    {"take", 1, 1, command_take}, {"outcome", 2, SIZE_MAX, command_outcome}, {"close", 2, 3, command_close},
};

static void obey(char *line) {
    size_t i = 0;
    field = take_room(&scratch, (strlen(line) + 2) * sizeof *field);
    for (fields = 0; line != NULL; fields++) {
        field[fields] = line;
        if ((line = strchr(line, '\t')) != NULL) *line++ = '\0';
    }
    while (i < 9 && !equal(commands[i].name, field[0])) i++;
    if (i == 9) fail("no such command: %s", field[0]);
    if (fields < commands[i].least || fields > commands[i].most) fail("%s has other fields", field[0]);
    if (i > 0 && (me.state == UNOPENED || me.state == CLOSED)) fail("no session is open");
    if (i > 0) { /* nothing is written by a session that was closed by somebody else */
        keep_alive();
        look_at_session(now());
        if (me.state == FENCED) leave();
        if (me.state == GONE) fail("the run folder is not there any more");
        catch_up();
    }
    commands[i].obey();
}

/* The next line of standard input, NULL at its end; beats while it waits. */
static char *next_line(void) {
    static char *input;
    static size_t size, room, used;
    size -= used;
    if (used > 0) memmove(input, input + used, size);
    for (used = 0;;) {
        char *end = size > 0 ? memchr(input, '\n', size) : NULL;
        if (end != NULL) {
            *end = '\0';
            used = (size_t)(end - input) + 1;
            return input;
        }
        if (room - size < 4096 && (input = realloc(input, room = 2 * room + 8192)) == NULL) die("out of memory");
        struct pollfd standard_input = {STDIN_FILENO, POLLIN, 0};
        double pause = me.state == OPEN || me.state == GONE ? me.due - now() : 3600;
        if (is_evaluator && watch_pause() < pause) pause = watch_pause();
        if (poll(&standard_input, 1, pause > 0 ? (int)(pause * 1000) + 1 : 0) > 0) {
            ssize_t count = read(STDIN_FILENO, input + size, room - size);
            if (count == 0 || (count < 0 && errno != EINTR)) return NULL;
            size += count > 0 ? (size_t)count : 0;
        }
        tend();
    }
}

static int print_run(void) {
    Buffer out = {0};
    Names names;
    if (setjmp(back) != 0) { fprintf(stderr, "fsrun-c: %s\n", problem); return 1; }
    if (!list(run, &names)) fail_at(run);
    for (int looks = 0; looks < 8 && (out.size = 0, !read_run(&out)); looks++) continue;
    return fwrite(out.at, 1, out.size, stdout) == out.size && fflush(stdout) == 0 ? 0 : 1;
}

static int drive(void) {
    char *line;
    know_self();
    while (me.state != CLOSED && (line = next_line()) != NULL) {
        bool closing = strncmp(line, "close", 5) == 0;
        int ended = setjmp(back);
        if (ended == 0) obey(line);
        if (ended == LEFT) answer("fenced");
        if (ended == LEFT && closing) break;
        for (char *at = problem; ended == FAILED && (at = strpbrk(at, "\t\n")) != NULL;) *at = ' ';
        if (ended == FAILED) answer("error\t%s", problem);
        clean_up();
    }
    if ((me.state == OPEN || me.state == GONE) && setjmp(back) == 0) close_own("failed", "input ended");
    return 0;
}

int main(int count, char **arguments) {
    bool drives = count == 3 && equal(arguments[1], "drive");
    if (count != 3 || (!drives && !equal(arguments[1], "read")) || arguments[2][0] != '/') {
        fputs("usage: fsrun-c read|drive RUN (an absolute path)\n", stderr);
        return 2;
    }
    for (size_t size = strlen(arguments[2]); size > 1 && arguments[2][size - 1] == '/'; size--)
        arguments[2][size - 1] = '\0';
    run = arguments[2];
    signal(SIGPIPE, SIG_IGN);
    int status = drives ? drive() : print_run();
    clear(&scratch);
    clear(&lasting);
    return status;
}
