/*
 * A client of fsrun, the training run as a folder, in one file of C11 and the C library of a POSIX system.
 *
 *     cc -std=c11 -O2 -o fsrun-c fsrun.c
 *     fsrun-c read RUN      print what the run folder RUN says
 *     fsrun-c drive RUN     take commands from standard input (docs/clients.md)
 *
 * Numbers in comments are sections of protocol.md. In order: memory and text; JSON; files and publication (7, 8.1);
 * names (3); the session (4); logs (6.8); hand-over (5.1); claims, outcomes and best/ (5.2 to 5.8); the evaluator's
 * look; what `read` prints (8); the commands.
 *
 * One process and no threads: it beats while it waits for the next command, and keep_alive() stands in every loop that
 * may last. An error ends a command and not the client: fail() goes back to the loop, which answers `error`. Memory is
 * of two arenas, one that is emptied after each command and one that lasts; nobody who holds a descriptor fails. Paths
 * are relative to the folder that the run stands in, and made in memory, so that no length is too long but the system's.
 */
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

#ifdef __GNUC__
#define LIKE_PRINTF(at, rest) __attribute__((format(printf, at, rest)))
#else
#define LIKE_PRINTF(at, rest)
#endif

#define PROTOCOL "1.0"
#define MAX_ENTRY 200
#define MAX_TAG 512
#define MAX_DEPTH 40 /* folders of a checkpoint */
#define MAX_NESTING 100
#define MAX_RECORD (64 << 20)
#define LINGER 600.0
#define GIVE_UP 30.0 /* seconds for which the folder may fail before a command does */

/* ---- Memory and text ---- */

typedef struct {
    const char *at; /* a NUL stands behind it, and perhaps within */
    size_t size;
} Bytes;

typedef struct Block {
    struct Block *below;
    size_t used, room;
    max_align_t memory[];
} Block;

typedef struct {
    Block *top;
} Arena;

static Arena scratch, lasting;
static jmp_buf back;
static char problem[1024];
enum { FAILED = 1, LEFT = 2 };

static void *take_room(Arena *arena, size_t size) {
    const size_t step = sizeof(max_align_t);
    size = (size + step - 1) / step * step;
    if (arena->top == NULL || arena->top->room - arena->top->used < size) {
        size_t room = size > 65536 ? size : 65536;
        Block *block = malloc(sizeof(Block) + room);
        if (block == NULL) {
            fputs("fsrun-c: out of memory\n", stderr);
            exit(1); /* the session expires, as after any death */
        }
        *block = (Block){arena->top, 0, room};
        arena->top = block;
    }
    char *at = (char *)arena->top->memory + arena->top->used;
    arena->top->used += size;
    return memset(at, 0, size);
}

/* An array in the scratch memory, with room for one more item. */
static void *grow(void *at, size_t size, size_t *room, size_t item) {
    if (size < *room)
        return at;
    *room = 2 * *room + 16;
    void *more = take_room(&scratch, *room * item);
    return size > 0 ? memcpy(more, at, size * item) : more;
}

static void clear(Arena *arena) {
    while (arena->top != NULL) {
        Block *below = arena->top->below;
        free(arena->top);
        arena->top = below;
    }
}

/* Ends the command with `error TEXT`. */
static _Noreturn void fail(const char *format, ...) LIKE_PRINTF(1, 2);
static _Noreturn void fail(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vsnprintf(problem, sizeof problem, format, rest);
    va_end(rest);
    longjmp(back, FAILED);
}

static _Noreturn void fail_at(const char *path) {
    fail("%s: %s", path, strerror(errno));
}

static const char *text(const char *format, ...) LIKE_PRINTF(1, 2);
static const char *text(const char *format, ...) {
    va_list rest, again;
    va_start(rest, format);
    va_copy(again, rest);
    int size = vsnprintf(NULL, 0, format, rest);
    char *at = take_room(&scratch, (size_t)(size < 0 ? 0 : size) + 1);
    vsnprintf(at, (size_t)size + 1, format, again);
    va_end(again);
    va_end(rest);
    return at;
}

static const char *keep(const char *from) {
    size_t size = strlen(from) + 1;
    return memcpy(take_room(&lasting, size), from, size);
}

static bool ends_with(const char *name, const char *end) {
    size_t size = strlen(name), of_end = strlen(end);
    return size >= of_end && strcmp(name + size - of_end, end) == 0;
}

/* `name` without its last `count` bytes. */
static const char *without(const char *name, size_t count) {
    return text("%.*s", (int)(strlen(name) - count), name);
}

static Bytes bytes(const char *from) {
    return (Bytes){from, strlen(from)};
}

static int compare(Bytes a, Bytes b) {
    int order = memcmp(a.at, b.at, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

typedef struct {
    char *at;
    size_t size, room;
} Buffer;

static void add_bytes(Buffer *buffer, const void *from, size_t size) {
    if (buffer->room - buffer->size < size + 1) {
        size_t room = 2 * buffer->room + size + 64;
        char *at = take_room(&scratch, room);
        if (buffer->size > 0)
            memcpy(at, buffer->at, buffer->size);
        *buffer = (Buffer){at, buffer->size, room};
    }
    memcpy(buffer->at + buffer->size, from, size);
    buffer->size += size;
    buffer->at[buffer->size] = '\0';
}

static void add(Buffer *buffer, const char *format, ...) LIKE_PRINTF(2, 3);
static void add(Buffer *buffer, const char *format, ...) {
    char few[512];
    va_list rest;
    va_start(rest, format);
    int size = vsnprintf(few, sizeof few, format, rest);
    va_end(rest);
    if (size > 0 && (size_t)size < sizeof few) {
        add_bytes(buffer, few, (size_t)size);
    } else if (size > 0) {
        char *more = take_room(&scratch, (size_t)size + 1);
        va_start(rest, format);
        vsnprintf(more, (size_t)size + 1, format, rest);
        va_end(rest);
        add_bytes(buffer, more, (size_t)size);
    }
}

static Bytes content(const Buffer *buffer) {
    return (Bytes){buffer->size > 0 ? buffer->at : "", buffer->size};
}

/* How many bytes the character of UTF-8 at `at` has; 0: it is none. */
static size_t character(const char *at, const char *end) {
    const unsigned char *b = (const unsigned char *)at;
    size_t left = (size_t)(end - at), size = b[0] < 0x80 ? 1 : b[0] < 0xC2 ? 0 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    if (size == 0 || size > left || b[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xF0 && b[1] < 0x90);
    bool surrogate = b[0] == 0xED && b[1] > 0x9F, beyond = b[0] == 0xF4 && b[1] > 0x8F;
    return overlong || surrogate || beyond ? 0 : size;
}

static bool is_utf8(const char *at) {
    const char *end = at + strlen(at);
    size_t size = 1;
    while (at < end && size > 0)
        at += size = character(at, end);
    return size > 0;
}

/* Whether a name has 1 to `most` bytes of UTF-8 and no control characters. */
static bool is_clean(const char *name, size_t most) {
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)name[i] < 32 || name[i] == 127)
            return false;
    return size > 0 && size <= most && is_utf8(name);
}

/* A text of JSON, with quotes; what is no UTF-8 becomes U+FFFD. */
static void add_text(Buffer *buffer, Bytes from) {
    const char *end = from.at + from.size;
    add_bytes(buffer, "\"", 1);
    for (const char *at = from.at; at < end;) {
        size_t size = character(at, end);
        if (size == 0)
            add(buffer, "\\ufffd");
        else if ((unsigned char)*at < 32)
            add(buffer, "\\u%04x", (unsigned)*at);
        else if (*at == '"' || *at == '\\')
            add(buffer, "\\%c", *at);
        else
            add_bytes(buffer, at, size);
        at += size > 0 ? size : 1;
    }
    add_bytes(buffer, "\"", 1);
}

/* `"key":"value"` with a comma before it, or null where there is no value. */
static void add_pair(Buffer *buffer, const char *key, const char *value) {
    add(buffer, ",\"%s\":", key);
    if (value == NULL)
        add(buffer, "null");
    else
        add_text(buffer, bytes(value));
}

/* ---- JSON (8.2): without recursion, numbers as they stand; of duplicate keys the last counts ---- */

typedef enum { J_NULL, J_FALSE, J_TRUE, J_NUMBER, J_WORD, J_TEXT, J_ARRAY, J_OBJECT } Kind; /* J_WORD: a bare NaN */

typedef struct Json {
    Kind kind;
    Bytes key;  /* its key in the object above */
    Bytes text; /* a text, decoded */
    Bytes raw;  /* the value as it stands in the source */
    struct Json *up, *first, *last, *next;
    size_t count; /* of the values below */
    int depth;
} Json;

static void skip_space(const char **at, const char *end) {
    while (*at < end && strchr(" \t\r\n", **at) != NULL && **at != '\0')
        ++*at;
}

static bool parse_hex(const char **at, const char *end, unsigned long *value) {
    *value = 0;
    for (int i = 0; i < 4; i++, ++*at) {
        if (*at == end || !isxdigit((unsigned char)**at))
            return false;
        int digit = **at <= '9' ? **at - '0' : (**at | 32) - 'a' + 10;
        *value = *value * 16 + (unsigned long)digit;
    }
    return true;
}

static bool parse_escape(const char **at, const char *end, Buffer *into) {
    if (*at == end)
        return false;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = strchr(from, **at);
    char letter = *(*at)++;
    if (found != NULL && letter != '\0') {
        add_bytes(into, &to[found - from], 1);
        return true;
    }
    unsigned long code, low;
    if (letter != 'u' || !parse_hex(at, end, &code) || (code >= 0xDC00 && code < 0xE000))
        return false;
    if (code >= 0xD800 && code < 0xDC00) { /* half a pair is text to nobody */
        if (end - *at < 2 || (*at)[0] != '\\' || (*at)[1] != 'u')
            return false;
        *at += 2;
        if (!parse_hex(at, end, &low) || low < 0xDC00 || low > 0xDFFF)
            return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    unsigned char out[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size; i-- > 1; code >>= 6)
        out[i] = (unsigned char)(0x80 | (code & 0x3F));
    out[0] = (unsigned char)((size == 1 ? 0 : size == 2 ? 0xC0 : size == 3 ? 0xE0 : 0xF0) | code);
    add_bytes(into, out, size);
    return true;
}

static bool parse_text(const char **at, const char *end, Bytes *found) {
    Buffer into = {0};
    if (*at == end || *(*at)++ != '"')
        return false;
    while (*at < end && **at != '"') {
        size_t size = character(*at, end);
        if (size == 0 || (unsigned char)**at < 32)
            return false;
        if (**at == '\\') {
            ++*at;
            if (!parse_escape(at, end, &into))
                return false;
        } else {
            add_bytes(&into, *at, size);
            *at += size;
        }
    }
    *found = content(&into);
    return *at < end && *(*at)++ == '"';
}

static bool parse_digits(const char **at, const char *end) {
    const char *start = *at;
    while (*at < end && isdigit((unsigned char)**at))
        ++*at;
    return *at > start;
}

static bool parse_number(const char **at, const char *end) {
    if (*at < end && **at == '-')
        ++*at;
    const char *start = *at;
    if (!parse_digits(at, end) || (*start == '0' && *at - start > 1))
        return false;
    if (*at < end && **at == '.' && (++*at, !parse_digits(at, end)))
        return false;
    if (*at < end && (**at == 'e' || **at == 'E')) {
        if (++*at < end && (**at == '+' || **at == '-'))
            ++*at;
        return parse_digits(at, end);
    }
    return true;
}

/* A value up to its end, or the bracket that opens it. */
static bool parse_start(const char **at, const char *end, bool is_line, Json *value) {
    static const struct { const char *word; Kind kind; } words[] = {
        {"null", J_NULL}, {"false", J_FALSE}, {"true", J_TRUE}, {"NaN", J_WORD}, {"Infinity", J_WORD}, {"-Infinity", J_WORD},
    };
    if (*at == end)
        return false;
    if (**at == '[' || **at == '{') {
        value->kind = *(*at)++ == '[' ? J_ARRAY : J_OBJECT;
        return true;
    }
    if (**at == '"') {
        value->kind = J_TEXT;
        return parse_text(at, end, &value->text);
    }
    for (size_t i = 0; i < (is_line ? 6 : 3); i++) {
        size_t size = strlen(words[i].word);
        if ((size_t)(end - *at) >= size && memcmp(*at, words[i].word, size) == 0) {
            value->kind = words[i].kind;
            *at += size;
            return true;
        }
    }
    value->kind = J_NUMBER;
    return parse_number(at, end);
}

static int by_key(const void *a, const void *b) {
    const Json *x = *(Json *const *)a, *y = *(Json *const *)b;
    int order = compare(x->key, y->key);
    return order != 0 ? order : x->raw.at < y->raw.at ? -1 : 1;
}

/* Drops all but the last value of each key. */
static void keep_last(Json *object) {
    if (object->kind != J_OBJECT || object->count < 2)
        return;
    Json **sorted = take_room(&scratch, object->count * sizeof *sorted), **next = sorted;
    for (Json *value = object->first; value != NULL; value = value->next)
        *next++ = value;
    qsort(sorted, object->count, sizeof *sorted, by_key);
    for (size_t i = 0; i + 1 < object->count; i++)
        if (compare(sorted[i]->key, sorted[i + 1]->key) == 0)
            sorted[i]->up = NULL;
    for (Json **link = &object->first; *link != NULL;)
        if ((*link)->up == NULL)
            *link = (*link)->next;
        else
            link = &(*link)->next;
}

/* The value that `source` holds, or NULL. In a line bare words stand for what JSON has no numbers for. */
static const Json *parse_any(Bytes source, bool is_line) {
    const char *at = source.at, *end = at + source.size;
    Json *open = NULL;
    for (;;) {
        Json *value = take_room(&scratch, sizeof *value);
        value->up = open;
        value->depth = open != NULL ? open->depth + 1 : 1;
        skip_space(&at, end);
        if (open != NULL && open->kind == J_OBJECT) {
            if (!parse_text(&at, end, &value->key) || (skip_space(&at, end), at == end) || *at++ != ':')
                return NULL;
            skip_space(&at, end);
        }
        value->raw.at = at;
        if (!parse_start(&at, end, is_line, value) || (value->kind >= J_ARRAY && value->depth > MAX_NESTING))
            return NULL;
        if (open != NULL) {
            *(open->last != NULL ? &open->last->next : &open->first) = value;
            open->last = value;
            open->count++;
        }
        if (value->kind >= J_ARRAY) {
            skip_space(&at, end);
            if (at == end || *at != (value->kind == J_ARRAY ? ']' : '}')) {
                open = value;
                continue;
            }
            at++;
        }
        for (;; value = open, open = open->up) { /* `value` is whole: what closes behind it? */
            value->raw.size = (size_t)(at - value->raw.at);
            skip_space(&at, end);
            if (open == NULL)
                return at == end ? value : NULL;
            if (at == end || (*at != ',' && *at != (open->kind == J_ARRAY ? ']' : '}')))
                return NULL;
            if (*at++ == ',')
                break;
            keep_last(open);
        }
    }
}

static const Json *parse(Bytes source) {
    return parse_any(source, false);
}

static const Json *get(const Json *object, const char *key) {
    const Json *value = object != NULL && object->kind == J_OBJECT ? object->first : NULL;
    while (value != NULL && compare(value->key, bytes(key)) != 0)
        value = value->next;
    return value;
}

/* The text under a key, or NULL where there is none or it holds a NUL. */
static const char *get_text(const Json *object, const char *key) {
    const Json *value = get(object, key);
    return value != NULL && value->kind == J_TEXT && strlen(value->text.at) == value->text.size ? value->text.at : NULL;
}

static bool is_text(const Json *value, const char *wanted) {
    return value != NULL && value->kind == J_TEXT && compare(value->text, bytes(wanted)) == 0;
}

/* A whole number of 64 bits, such as 12 or 12.0. */
static bool as_whole(const Json *value, long long *whole) {
    if (value == NULL || value->kind != J_NUMBER)
        return false;
    const char *number = text("%.*s", (int)value->raw.size, value->raw.at);
    if (strpbrk(number, ".eE") == NULL) {
        errno = 0;
        *whole = strtoll(number, NULL, 10);
        return errno == 0;
    }
    double real = strtod(number, NULL);
    if (!(real > -9223372036854775808.0 && real < 9223372036854775808.0) || floor(real) != real)
        return false;
    *whole = (long long)real;
    return true;
}

static long long get_whole(const Json *object, const char *key, long long otherwise) {
    long long whole;
    return as_whole(get(object, key), &whole) ? whole : otherwise;
}

static bool is_word(const Json *value, const char *word) {
    return is_text(value, word) || (value != NULL && value->kind == J_WORD && compare(value->raw, bytes(word)) == 0);
}

/* A number, or one of the words for what JSON has no number for (6). */
static bool as_value(const Json *value, double *real) {
    if (value != NULL && value->kind == J_NUMBER)
        *real = strtod(text("%.*s", (int)value->raw.size, value->raw.at), NULL);
    else if (is_word(value, "NaN"))
        *real = NAN;
    else if (is_word(value, "Infinity") || is_word(value, "-Infinity"))
        *real = memchr(value->raw.at, '-', 2) != NULL ? -INFINITY : INFINITY;
    else
        return false;
    return true;
}

/* A value as it was written, since digits say more than a double; past the doubles it is a word. */
static void add_value(Buffer *buffer, const Json *value, double real) {
    if (isnan(real))
        add(buffer, "\"NaN\"");
    else if (isinf(real))
        add(buffer, real > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        add_bytes(buffer, value->raw.at, value->raw.size);
}

/* ---- Time ---- */

/* Seconds on a clock that counts suspend (4.5). */
static double now(void) {
    struct timespec time;
#ifdef CLOCK_BOOTTIME
    if (clock_gettime(CLOCK_BOOTTIME, &time) == 0)
        return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
#endif
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long long wall_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

static const char *rfc3339(long long ns) {
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm parts;
    char date[32];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
    return text("%s.%03dZ", date, (int)(ns / 1000000 % 1000));
}

static void keep_alive(void);

static void nap(double seconds) {
    struct timespec pause = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&pause, NULL);
}

/* ---- Files: fresh reads (8.1) and publication (7) ---- */

static struct {
    char job[64], token[40];
    long long session;
    enum { NOTHING, OPEN, GONE, FENCED, CLOSED } state;
    bool ending;      /* the end is being put: nothing is protected any more (4.3) */
    double timeout;   /* T */
    const char *timeout_text;
    long long count;  /* of the beat that stands */
    double last_good; /* start of the last good beat */
    double doubt;     /* start of the first beat tried since then, 0: none */
    double audited;   /* when the folder was last looked at */
    double due;       /* when the next beat is */
    double viewed;    /* when the view was written */
    char tried[40];   /* token of the last lock that was tried: a lost reply may hide that it stands */
    double tried_at;
    const char *carried;  /* what the next lock of this job says again */
    const char *holder;   /* this process (6.1) */
    long long logged;     /* bytes of the log of this session */
    long long synced;     /* those that fsync acknowledged */
    long long last_step;  /* that was logged */
    bool has_step;
    long long finished;   /* main session that FINISHED is to name, 0: none */
} me;

/* Lines that no fsync has acknowledged: `sent` bytes of them are written to the log of this session. */
static struct {
    char *at;
    size_t size, room, sent;
    double synced; /* when fsync last said that all is well */
} pending;

static const char *run; /* the run folder, and the unit: relative to the folder that the run stands in, or absolute */
static const char *unit;

typedef struct {
    const char **at;
    size_t size;
} Names;

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A fresh listing, sorted: open and close the folder, have what is remembered of it dropped, then list it. */
static bool list(const char *folder, Names *names) {
    *names = (Names){NULL, 0};
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0)
        return false;
#ifdef POSIX_FADV_DONTNEED
    (void)posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED);
#endif
    close(opened);
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return false;
    size_t room = 0;
    struct dirent *item;
    while ((errno = 0, item = readdir(stream)) != NULL) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        names->at = grow(names->at, names->size, &room, sizeof *names->at);
        names->at[names->size++] = text("%s", item->d_name);
    }
    int error = errno;
    closedir(stream);
    errno = error;
    if (error == 0 && names->size > 0)
        qsort(names->at, names->size, sizeof *names->at, by_name);
    return error == 0;
}

static bool is_absent(int error) {
    return error == ENOENT || error == ENOTDIR || error == ESTALE;
}

/* A fresh listing, empty where there is no such folder. */
static Names names_in(const char *folder) {
    Names names;
    if (!list(folder, &names) && !is_absent(errno))
        fail_at(folder);
    return names;
}

static bool has(const Names *names, const char *name) {
    return names->size > 0 && bsearch(&name, names->at, names->size, sizeof *names->at, by_name) != NULL;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? "." : slash == path ? "/" : text("%.*s", (int)(slash - path), path);
}

/* Absence is judged by a fresh listing alone (8.1). */
static bool is_present(const char *path) {
    Names names = names_in(folder_of(path));
    return has(&names, last_part(path));
}

/* At most `most` bytes of a file from `start` on (below 0: so many before its end) through a fresh open, in memory that
 * grows with what is there: a size is a claim. `to_nul`: up to the first NUL (8.2). False: errno says why. */
static bool read_file(const char *path, long long start, long long most, bool to_nul, Bytes *found) {
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat facts;
    Buffer into = {0};
    ssize_t count = 0;
    const char *nul = NULL;
    if (file < 0)
        return false;
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        close(file);
        errno = ENOENT;
        return false;
    }
    start = start < 0 && facts.st_size + start > 0 ? facts.st_size + start : start < 0 ? 0 : start;
    do {
        static char piece[1 << 16];
        long long left = most - (long long)into.size;
        size_t want = left < (long long)sizeof piece ? (size_t)left : sizeof piece;
        count = pread(file, piece, want, (off_t)(start + (long long)into.size));
        nul = to_nul && count > 0 ? memchr(piece, 0, (size_t)count) : NULL;
        if (count > 0)
            add_bytes(&into, piece, nul != NULL ? (size_t)(nul - piece) : (size_t)count);
        keep_alive();
    } while (count > 0 && nul == NULL);
    int error = errno;
    close(file);
    errno = error;
    *found = content(&into);
    return count >= 0;
}

/* A record (6): an object that ends in a newline; NULL: not there yet. Never fails, so that a beat may ask. */
static const Json *peek_record(const char *path) {
    Bytes found;
    errno = 0;
    if (!read_file(path, 0, MAX_RECORD + 1, false, &found) || found.size == 0 || found.size > MAX_RECORD || found.at[found.size - 1] != '\n')
        return NULL;
    if (found.size > 3 && memcmp(found.at, "\xEF\xBB\xBF", 3) == 0)
        found = (Bytes){found.at + 3, found.size - 3};
    const Json *value = parse(found);
    return value != NULL && value->kind == J_OBJECT ? value : NULL;
}

static const Json *record(const char *path) {
    const Json *found = peek_record(path);
    if (found == NULL && errno != 0 && !is_absent(errno) && errno != ELOOP && errno != ENXIO && errno != EINVAL)
        fail_at(path);
    return found;
}

static void random_name(char out[17]) {
    unsigned char from[8] = {0};
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? -1 : read(file, from, sizeof from);
    if (file >= 0)
        close(file);
    if (count != sizeof from) {
        long long other = wall_ns() ^ (long long)getpid() << 40;
        memcpy(from, &other, sizeof from);
    }
    for (int i = 0; i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", from[i]);
}

/* A hidden name in `folder` that carries who made it (3). */
static const char *temporary(const char *folder) {
    char name[17];
    random_name(name);
    return text("%s/.tmp-%s.%lld-%s", folder, me.job, me.session, name);
}

static bool sync_folder(const char *folder) {
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0)
        return false;
    bool good = fsync(opened) == 0 || errno == EINVAL; /* some systems cannot */
    close(opened);
    return good;
}

static bool write_all(int file, Bytes data) {
    for (size_t done = 0; done < data.size;) {
        ssize_t count = write(file, data.at + done, data.size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (size_t)count;
    }
    return true;
}

/* A new file, durable; removed again where that fails part way. */
static bool create(const char *path, Bytes data) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0664);
    if (file < 0)
        return false;
    bool good = write_all(file, data) && fsync(file) == 0;
    int error = errno;
    if (close(file) != 0 && good) {
        error = errno;
        good = false;
    }
    if (!good)
        unlink(path);
    errno = error;
    return good;
}

static bool is_same(const char *a, const char *b) {
    struct stat x, y;
    return lstat(a, &x) == 0 && lstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool refuses_links(int error) {
    return error == EPERM || error == EACCES || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS ||
           error == EMLINK || error == EXDEV;
}

/* Put-if-absent. 1: what stands at `path` is ours, 0: another's, -1: an error (errno), and nothing of ours. */
static int put(const char *path, Bytes data) {
    const char *folder = folder_of(path), *temp = temporary(folder);
    if (!create(temp, data))
        return -1;
    int ours = link(temp, path) == 0 ? 1 : -1, error = errno;
    if (ours < 0 && is_same(temp, path)) /* a lost reply: the second try failed, the first one happened */
        ours = 1;
    else if (ours < 0 && error == EEXIST)
        ours = 0;
    else if (ours < 0 && refuses_links(error)) {
        ours = create(path, data) ? 1 : errno == EEXIST ? 0 : -1;
        error = errno;
    }
    unlink(temp);
    if (ours == 1 && !sync_folder(folder)) {
        ours = -1;
        error = errno;
    }
    errno = error;
    return ours;
}

/* Ends the command with `fenced`. */
static _Noreturn void leave(void) {
    longjmp(back, LEFT);
}

/* The same, where an error ends the command; who is fenced puts nothing any more (4.6). */
static bool must_put(const char *path, Bytes data) {
    if (me.state == FENCED)
        leave();
    int ours = put(path, data);
    if (ours < 0)
        fail_at(path);
    return ours == 1;
}

static bool replace(const char *path, Bytes data) {
    const char *temp = temporary(folder_of(path));
    if (!create(temp, data))
        return false;
    if (rename(temp, path) != 0) {
        int error = errno;
        Names names;
        bool happened = list(folder_of(path), &names) && !has(&names, last_part(temp)) && has(&names, last_part(path));
        unlink(temp);
        errno = error;
        if (!happened) /* else the reply was lost */
            return false;
    }
    return sync_folder(folder_of(path));
}

/* One rename to a target where nothing else can stand: true if it stands there now, whoever moved it. */
static bool move(const char *from, const char *to) {
    if (rename(from, to) == 0)
        return true;
    int error = errno;
    if (is_absent(error))
        return is_present(to);
    if (is_present(from) || !is_present(to)) {
        errno = error;
        fail_at(from);
    }
    return true;
}

/* Makes the folders of `path` below `root`, which must be there: it may have been moved away (4.1). */
static void make_folders(const char *root, const char *path) {
    for (const char *at = path; *at != '\0'; at += *at == '/') {
        at += strcspn(at, "/");
        const char *folder = text("%s/%.*s", root, (int)(at - path), path);
        if (mkdir(folder, 02775) == 0)
            sync_folder(folder_of(folder));
        else if (errno != EEXIST)
            fail_at(folder);
    }
}

static bool is_folder(const char *path) {
    struct stat facts;
    return lstat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* What another host holds open (.nfs*) stays until the next time. */
static void remove_tree(const char *path) {
    if (!is_folder(path)) {
        unlink(path);
        return;
    }
    Names names = names_in(path);
    for (size_t i = 0; i < names.size; i++)
        remove_tree(text("%s/%s", path, names.at[i]));
    rmdir(path);
    keep_alive();
}

/* Removes what stands at `path` of `root`, through its trash/, where anyone may go on after a crash. */
static void discard(const char *root, const char *path) {
    make_folders(root, "trash");
    const char *target = temporary(text("%s/trash", root));
    if (move(text("%s/%s", root, path), target))
        remove_tree(target);
}

static void empty_trash(const char *root) {
    Names names = names_in(text("%s/trash", root));
    for (size_t i = 0; i < names.size; i++)
        remove_tree(text("%s/trash/%s", root, names.at[i]));
}

/* ---- Names (3) ---- */

/* Reads a number of at most 18 digits without leading zeros, up to `end`. */
static bool read_number(const char *at, size_t size, long long *found) {
    *found = 0;
    if (size == 0 || size > 18 || (at[0] == '0' && size > 1))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)at[i]))
            return false;
        *found = *found * 10 + (at[i] - '0');
    }
    return true;
}

static bool is_of(const char *at, size_t size, const char *letters) {
    return strspn(at, letters) >= size;
}

static bool is_job(const char *at, size_t size) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    return size >= 1 && size <= 48 && is_of(at, size, letters) && at[0] != '_' && at[0] != '-';
}

static bool is_token(const char *at, size_t size) {
    return size >= 8 && size <= 32 && is_of(at, size, "abcdefghijklmnopqrstuvwxyz0123456789");
}

typedef struct {
    const char *parts[6];
    size_t sizes[6], count; /* count 6: more than five */
} Split;

static Split split(const char *name) {
    Split found = {0};
    for (const char *at = name; found.count < 6; at++) {
        size_t size = strcspn(at, ".");
        found.parts[found.count] = at;
        found.sizes[found.count++] = size;
        if (at[size] == '\0')
            break;
        at += size;
    }
    return found;
}

static bool is_part(const Split *name, size_t part, const char *word) {
    return name->sizes[part] == strlen(word) && memcmp(name->parts[part], word, name->sizes[part]) == 0;
}

typedef struct {
    enum { UNKNOWN, LOCK, END, BEAT, TAKEN } kind;
    const char *name, *job, *token;
    long long session, count;
} JobFile;

/* Reads a name of jobs/; what the protocol does not know is UNKNOWN, kept and ignored. */
static JobFile job_file(const char *name) {
    JobFile file = {UNKNOWN, name, NULL, NULL, 0, 0};
    Split parts = split(name);
    if ((parts.count != 3 && parts.count != 5) || !is_job(parts.parts[0], parts.sizes[0]) ||
        !read_number(parts.parts[1], parts.sizes[1], &file.session) || file.session == 0)
        return file;
    file.job = text("%.*s", (int)parts.sizes[0], name);
    if (parts.count == 3) {
        file.kind = is_part(&parts, 2, "lock") ? LOCK : is_part(&parts, 2, "end") ? END : UNKNOWN;
    } else if (is_token(parts.parts[2], parts.sizes[2]) && read_number(parts.parts[4], parts.sizes[4], &file.count)) {
        file.token = text("%.*s", (int)parts.sizes[2], parts.parts[2]);
        file.kind = is_part(&parts, 3, "beat") ? BEAT : is_part(&parts, 3, "taken") ? TAKEN : UNKNOWN;
    }
    return file;
}

/* Reads `<job>.<n>`, the name of a folder in claimed/. */
static bool claim_folder(const char *name, const char **job, long long *session) {
    Split parts = split(name);
    *job = text("%.*s", (int)parts.sizes[0], name);
    return parts.count == 2 && is_job(parts.parts[0], parts.sizes[0]) &&
           read_number(parts.parts[1], parts.sizes[1], session) && *session > 0;
}

static bool is_entry(const char *name) {
    return name[0] != '.' && !ends_with(name, ".tmp") && strcmp(name, "FINISHED") != 0 && strchr(name, '/') == NULL &&
           is_clean(name, MAX_ENTRY);
}

/* Reads `<entry>.<k>` from the right, since entries may hold dots. */
static bool read_key(const char *key, const char **entry, long long *attempt) {
    const char *dot = strrchr(key, '.');
    *entry = dot != NULL ? text("%.*s", (int)(dot - key), key) : "";
    return dot != NULL && read_number(dot + 1, strlen(dot + 1), attempt) && *attempt > 0 && is_entry(*entry);
}

static bool outcome_name(const char *name, const char **entry, long long *attempt) {
    return ends_with(name, ".json") && read_key(without(name, 5), entry, attempt);
}

typedef struct {
    const char *base, *suffix;
    long long use;
} Use;

/* `epoch_012~2.pt` is the second use of `epoch_012.pt`. */
static Use use_of(const char *name) {
    const char *dot = strrchr(name, '.');
    if (dot == NULL || dot == name || dot[-1] == '.' || !isalpha((unsigned char)dot[1]) || strlen(dot + 1) > 16)
        dot = name + strlen(name);
    for (const char *at = dot + (*dot != '\0'); *at != '\0'; at++)
        if (!isalnum((unsigned char)*at)) {
            dot = name + strlen(name);
            break;
        }
    Use found = {text("%.*s", (int)(dot - name), name), dot, 1};
    const char *mark = strrchr(found.base, '~');
    long long use;
    if (mark != NULL && mark > found.base && read_number(mark + 1, strlen(mark + 1), &use) && use >= 2 && use < 1000000000)
        found = (Use){text("%.*s", (int)(mark - found.base), found.base), dot, use};
    return found;
}

/* The name for the next use of an entry name, after all uses in `taken`; a base that is too long is cut. */
static const char *next_use(const char *name, const Names *taken) {
    Use mine = use_of(name);
    const char *found;
    for (size_t i = 0; i < taken->size; i++) {
        Use other = use_of(taken->at[i]);
        if (strcmp(other.base, mine.base) == 0 && strcmp(other.suffix, mine.suffix) == 0 && other.use > mine.use)
            mine.use = other.use;
    }
    do {
        mine.use++;
        const char *mark = text("~%lld%s", mine.use, mine.suffix);
        size_t room = MAX_ENTRY - strlen(mark), size = strlen(mine.base) < room ? strlen(mine.base) : room;
        while (size > 0 && ((unsigned char)mine.base[size] & 0xC0) == 0x80)
            size--;
        found = text("%.*s%s", (int)size, mine.base, mark);
    } while (has(taken, found));
    return found;
}

static bool follows(const char *name, size_t at, const char *word) {
    size_t size = strlen(word);
    if (at < size)
        return false;
    for (size_t i = 0; i < size; i++)
        if (tolower((unsigned char)name[at - size + i]) != word[i])
            return false;
    return true;
}

/* The step in an entry's name: `step=1200` over `epoch_3` and `checkpoint-500` over the last number. */
static bool step_of_name(const char *name, long long *step) {
    const char *base = use_of(name).base;
    int best = 0;
    for (size_t at = 0; base[at] != '\0';) {
        size_t size = strspn(base + at, "0123456789"), from = at;
        if (size == 0) {
            at++;
            continue;
        }
        if (from > 0 && strchr("=_-", base[from - 1]) != NULL)
            from--;
        int rank = follows(base, from, "step") ? 3 : follows(base, from, "epoch") || follows(base, at, "checkpoint-") ? 2 : 1;
        if (rank >= best) {
            errno = 0;
            long long found = strtoll(text("%.*s", (int)size, base + at), NULL, 10);
            *step = errno == 0 ? found : -1;
            best = rank;
        }
        at += size;
    }
    return best > 0 && *step >= 0;
}

/* ---- The session (4) ---- */

static const char *jobs_folder(void) {
    return text("%s/jobs", run);
}

static const char *job_path(const char *job, long long session, const char *kind) {
    return text("%s/jobs/%s.%lld.%s", run, job, session, kind);
}

/* What a fresh listing of jobs/ shows, as far as the protocol knows it. */
typedef struct {
    JobFile *at;
    size_t size;
} Jobs;

static bool list_jobs(Jobs *jobs) {
    Names names;
    if (!list(jobs_folder(), &names))
        return false;
    *jobs = (Jobs){take_room(&scratch, (names.size + 1) * sizeof *jobs->at), 0};
    for (size_t i = 0; i < names.size; i++) {
        jobs->at[jobs->size] = job_file(names.at[i]);
        jobs->size += jobs->at[jobs->size].kind != UNKNOWN;
    }
    return true;
}

static Jobs jobs_now(void) {
    Jobs jobs = {NULL, 0};
    if (!list_jobs(&jobs) && !is_absent(errno))
        fail_at(jobs_folder());
    return jobs;
}

static bool stands(const Jobs *jobs, int kind, const char *job, long long session) {
    for (size_t i = 0; i < jobs->size; i++)
        if ((int)jobs->at[i].kind == kind && jobs->at[i].session == session && strcmp(jobs->at[i].job, job) == 0)
            return true;
    return false;
}

/* The highest lock of a job, 0: it was never opened. */
static long long highest(const Jobs *jobs, const char *job) {
    long long found = 0;
    for (size_t i = 0; i < jobs->size; i++)
        if (jobs->at[i].kind == LOCK && jobs->at[i].session > found && strcmp(jobs->at[i].job, job) == 0)
            found = jobs->at[i].session;
    return found;
}

static bool is_closed(const Jobs *jobs, const char *job, long long session) {
    return stands(jobs, END, job, session) || highest(jobs, job) > session;
}

/* Whether a name is a beat (or TAKEN) of a session; `token` "": of whatever token. */
static bool is_beat(const JobFile *file, int kind, const char *job, long long session, const char *token) {
    return (int)file->kind == kind && file->session == session && strcmp(file->job, job) == 0 &&
           (token[0] == '\0' || strcmp(file->token, token) == 0);
}

/* The highest beat (or TAKEN) of a session, -1: none; `some`: how many there are. */
static long long beat_of(const Jobs *jobs, int kind, const char *job, long long session, const char *token, int *some) {
    long long found = -1;
    *some = 0;
    for (size_t i = 0; i < jobs->size; i++) {
        JobFile file = jobs->at[i];
        if (is_beat(&file, kind, job, session, token)) {
            ++*some;
            found = file.count > found ? file.count : found;
        }
    }
    return found;
}

/* Why nothing may be written to a run in which this lock stands (10), or NULL. */
static const char *refusal(const Json *lock) {
    const char *protocol = get_text(lock, "protocol");
    const Json *words = get(lock, "must_understand");
    long long major = 0;
    if (protocol == NULL || !isdigit((unsigned char)protocol[0]) || (major = strtoll(protocol, NULL, 10)) != 1)
        return text("protocol %s is not one that this client may write under", protocol != NULL ? protocol : "?");
    if (words != NULL && (words->kind != J_ARRAY || words->first != NULL))
        return text("what must be understood is not: %.*s", (int)(words->raw.size % 200), words->raw.at);
    return NULL;
}

/* A lock that says what the rules need, or NULL. */
static const Json *peek_lock(const char *job, long long session) {
    const Json *lock = peek_record(job_path(job, session, "lock")), *fence = get(lock, "fence");
    const Json *continues = get(lock, "continues"), *timeout = get(lock, "timeout");
    const char *token = get_text(lock, "token");
    long long size;
    if (lock != NULL && refusal(lock) != NULL)
        return lock;
    if (!is_text(get(lock, "job"), job) || get_whole(lock, "session", 0) != session || token == NULL ||
        timeout == NULL || timeout->kind != J_NUMBER || (continues != NULL && continues->kind != J_TRUE && continues->kind != J_FALSE))
        return NULL;
    if (fence != NULL && fence->kind != J_NULL && fence->kind != J_OBJECT)
        return NULL;
    for (fence = fence != NULL ? fence->first : NULL; fence != NULL; fence = fence->next)
        if (!as_whole(fence, &size) || size < 0)
            return NULL;
    return lock;
}

/* The same, to act upon. */
static const Json *read_lock(const char *job, long long session) {
    const Json *lock = peek_lock(job, session);
    const char *why = lock != NULL ? refusal(lock) : NULL;
    if (why != NULL)
        fail("%s: %s", job_path(job, session, "lock"), why);
    return lock;
}

static void good_beat(double started, long long count) {
    me.count = count;
    me.last_good = started;
    me.doubt = 0;
    me.due = started + me.timeout / 6;
    me.state = OPEN;
}

static void adopt_session(long long session, const char *token, double began) {
    me.session = session;
    snprintf(me.token, sizeof me.token, "%s", token);
    me.logged = me.synced = 0;
    pending.sent = 0; /* what was in doubt is written again (4.7) */
    me.ending = false;
    me.audited = began;
    good_beat(began, 0);
}

/* Opens session n: the own beat, then the lock that names its token (4.1). 1: opened, 0: lost, -1: an error. */
static int open_session(long long session, Bytes fence, bool continues) {
    double began = now();
    random_name(me.tried);
    me.tried_at = began;
    const char *beat = text("%s/jobs/%s.%lld.%s.beat.0", run, me.job, session, me.tried);
    Buffer lock = {0};
    add(&lock, "{\"protocol\":\"" PROTOCOL "\",\"job\":\"%s\",\"session\":%lld,\"token\":\"%s\"", me.job, session, me.tried);
    add(&lock, ",\"timeout\":%s,\"opened\":\"%s\",\"holder\":%s", me.timeout_text, rfc3339(wall_ns()), me.holder);
    add(&lock, ",\"continues\":%s,\"fence\":", continues ? "true" : "false");
    add_bytes(&lock, fence.at, fence.size);
    add(&lock, "%s,\"hands_over\":false}\n", me.carried);
    if (!create(beat, bytes("")))
        return -1;
    int ours = put(job_path(me.job, session, "lock"), content(&lock));
    int error = errno;
    if (ours < 0 && is_text(get(peek_record(job_path(me.job, session, "lock")), "token"), me.tried))
        ours = 1; /* what stands decides */
    if (ours == 1)
        adopt_session(session, me.tried, began);
    else
        unlink(beat);
    errno = error;
    return ours;
}

/* Puts an end: 1: it stands, 0: another one does, -1: an error. `token` "": by somebody else than the holder. */
static int put_end(const char *job, long long session, const char *token, const char *status, const char *reason) {
    Buffer end = {0};
    add(&end, "{\"protocol\":\"" PROTOCOL "\",\"job\":\"%s\",\"session\":%lld,\"token\":\"%s\"", job, session, token);
    add_pair(&end, "status", status);
    add_pair(&end, "reason", reason);
    add_pair(&end, "ended", rfc3339(wall_ns()));
    if (token[0] == '\0') {
        add(&end, ",\"found_by\":%s}\n", me.holder);
        return put(job_path(job, session, "end"), content(&end));
    }
    if (me.has_step)
        add(&end, ",\"step\":%lld", me.last_step);
    add(&end, ",\"sizes\":{");
    if (me.synced > 0)
        add(&end, "\"scalars/%s.%lld.jsonl\":%lld", job, session, me.synced);
    add(&end, "}}\n");
    return put(job_path(job, session, "end"), content(&end));
}

/* Removes the beats and taken names of a job's closed sessions (4.4), and the own ones once the end stands. */
static void sweep(const char *job) {
    Jobs jobs;
    if (!list_jobs(&jobs))
        return;
    for (size_t i = 0; i < jobs.size; i++) {
        JobFile file = jobs.at[i];
        if ((file.kind == BEAT || file.kind == TAKEN) && strcmp(file.job, job) == 0 && is_closed(&jobs, job, file.session))
            unlink(text("%s/jobs/%s", run, file.name));
    }
}

static bool sync_log(void);
static bool push_log(void);

/* Closed by a false verdict, and still the highest: put the missing end, open the next session, go on (4.6). */
static void go_on(const Jobs *jobs) {
    me.ending = true; /* whatever comes of it: nothing is protected until a session is open */
    sync_log();       /* what it does not acknowledge is written again in the next session (4.7) */
    if (!stands(jobs, END, me.job, me.session) &&
        put_end(me.job, me.session, me.token, "crashed", "expired") < 0)
        return;
    Buffer fence = {0};
    add(&fence, "{");
    if (me.synced > 0)
        add(&fence, "\"scalars/%s.%lld.jsonl\":%lld", me.job, me.session, me.synced);
    add(&fence, "}");
    if (open_session(me.session + 1, content(&fence), true) == 1) {
        sweep(me.job);
        push_log();
    }
}

/* Asks a fresh listing where the session stands (4.2). True: its beat is there. */
static bool look_at_session(double started) {
    Jobs jobs;
    if (!list_jobs(&jobs)) {
        if (is_absent(errno))
            me.state = GONE; /* the run was moved: nothing is made anew there, and no end is put */
        return false;
    }
    long long last = highest(&jobs, me.job);
    int some, taken;
    long long count = beat_of(&jobs, BEAT, me.job, me.session, me.token, &some);
    bool ended = stands(&jobs, END, me.job, me.session);
    if (stands(&jobs, LOCK, me.job, me.session) && last == me.session && !ended && some > 0) {
        if (count > me.count) /* perhaps an earlier beat, which a stale listing hid */
            good_beat(me.doubt > 0 ? me.doubt : started, count);
        me.audited = started;
        return true;
    }
    bool locked = stands(&jobs, LOCK, me.job, me.session);
    const Json *lock = locked ? peek_lock(me.job, me.session) : NULL;
    if (!locked || (lock != NULL && !is_text(get(lock, "token"), me.token))) {
        me.state = GONE; /* another folder than the one that was opened */
        return false;
    }
    if (lock == NULL)
        return false; /* it cannot be read now */
    if (last > me.session) {
        const Json *later = peek_lock(me.job, last);
        if (is_text(get(later, "token"), me.tried))
            adopt_session(last, me.tried, me.tried_at); /* opened by ourselves: the reply was lost */
        else
            me.state = FENCED;
        return false;
    }
    beat_of(&jobs, TAKEN, me.job, me.session, me.token, &taken);
    if (ended || taken > 0 || now() - me.last_good >= me.timeout)
        go_on(&jobs);
    return false;
}

/* One rename is the whole heartbeat (4.2). Never fails: what stands there decides. */
static void beat(void) {
    static bool within;
    if (within || (me.state != OPEN && me.state != GONE))
        return;
    within = true;
    double started = now();
    const char *name = text("%s/jobs/%s.%lld.%s.beat.", run, me.job, me.session, me.token);
    me.due = started + me.timeout / 12; /* unless it is a good one */
    if (rename(text("%s%lld", name, me.count), text("%s%lld", name, me.count + 1)) == 0) {
        good_beat(started, me.count + 1);
        if (started - me.audited >= me.timeout) /* an end put by hand leaves the beat where it is */
            look_at_session(started);
    } else {
        if (me.doubt == 0)
            me.doubt = started;
        look_at_session(started);
    }
    within = false;
}

static void keep_alive(void) {
    if ((me.state == OPEN || me.state == GONE) && now() >= me.due)
        beat();
}

static bool is_protected(void) {
    return me.state == OPEN && !me.ending && now() - me.last_good < me.timeout * 2 / 3;
}

/* Returns once protected work may begin (4.5). */
static void protect(void) {
    for (double began = now(); !is_protected(); nap(me.timeout / 24)) {
        beat();
        if (is_protected())
            return;
        if (me.state == FENCED || me.state == CLOSED)
            leave();
        if (now() - began > GIVE_UP)
            fail("%s: no heartbeat is possible", run);
    }
}

/* The view of the own session (4.8), for people: nothing is decided by it, so an error is no matter. It is written
 * while the session is open, at its end just before that stands. */
static void write_view(const char *status, const char *reason) {
    Buffer view = {0};
    add(&view, "{\"protocol\":\"" PROTOCOL "\",\"job\":\"%s\",\"session\":%lld", me.job, me.session);
    add_pair(&view, "status", status);
    add_pair(&view, "reason", reason);
    add_pair(&view, "heartbeat", rfc3339(wall_ns()));
    add_pair(&view, "ended", strcmp(status, "running") != 0 ? rfc3339(wall_ns()) : NULL);
    if (me.has_step)
        add(&view, ",\"step\":%lld", me.last_step);
    add(&view, ",\"holder\":%s%s}\n", me.holder, me.carried);
    me.viewed = now();
    if (is_protected())
        replace(strcmp(me.job, "main") == 0 ? text("%s/run.json", run) : text("%s/jobs/%s.json", run, me.job), content(&view));
}

/* ---- Closing somebody else's session (4.4) ---- */

static struct {
    char host[256], boot[64], pidns[32];
    long long pid, ticks; /* -1: not known */
} self;

/* A small file of /proc, whose size nobody knows before. */
static bool read_proc(const char *path, char *into, size_t room) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t done = 0;
    ssize_t count;
    while (done + 1 < room && (count = read(file, into + done, room - 1 - done)) > 0)
        done += (size_t)count;
    close(file);
    into[done] = '\0';
    into[strcspn(into, "\n")] = '\0';
    return done > 0;
}

static bool is_own_proc(void) {
    char link[32] = {0};
    return readlink("/proc/self", link, sizeof link - 1) > 0 && strtoll(link, NULL, 10) == (long long)getpid();
}

/* State and raw start ticks of a process; its name, in parentheses, may hold anything. */
static bool read_stat(long long pid, char *state, long long *ticks) {
    char line[2048];
    if (!is_own_proc() || !read_proc(text("/proc/%lld/stat", pid), line, sizeof line))
        return false;
    const char *at = strrchr(line, ')');
    if (at == NULL || sscanf(at + 1, " %c", state) != 1)
        return false;
    for (int field = 2; field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL)
            return false;
    }
    *ticks = strtoll(at, NULL, 10);
    return true;
}

static void know_self(void) {
    struct stat facts;
    char state;
    gethostname(self.host, sizeof self.host - 1);
    read_proc("/proc/sys/kernel/random/boot_id", self.boot, sizeof self.boot);
    if (stat("/proc/self/ns/pid", &facts) == 0)
        snprintf(self.pidns, sizeof self.pidns, "%llu", (unsigned long long)facts.st_ino);
    self.pid = (long long)getpid();
    if (!read_stat(self.pid, &state, &self.ticks))
        self.ticks = -1;
    Buffer holder = {0};
    add(&holder, "{\"host\":");
    add_text(&holder, bytes(self.host));
    add(&holder, ",\"boot\":\"%s\",\"pidns\":\"%s\",\"pid\":%lld,\"ticks\":", self.boot, self.pidns, self.pid);
    if (self.ticks >= 0)
        add(&holder, "%lld}", self.ticks);
    else
        add(&holder, "null}");
    me.holder = keep(content(&holder).at);
}

typedef struct {
    char job[64], token[40], host[256], boot[64], pidns[32];
    long long session, pid, ticks;
    double timeout;
    bool known;      /* its lock was read */
    bool wanted;     /* by the last look of the evaluator */
    bool hands_over; /* a side job for which evaluators wait (5.8) */
    double first;    /* end of the first listing of the window, 0: none */
    double before;   /* end of the last listing, 0: none */
    int looks, some; /* listings of the window; beats in the last one */
    long long count; /* the highest beat seen, -1: none */
} Watch;

typedef enum { WATCHING, ALIVE, EXPIRED, VERDICT } Verdict;

static void copy_text(char *into, size_t room, const char *from) {
    snprintf(into, room, "%s", from != NULL ? from : "");
}

/* Reads the lock, unless it was read; without one the session is watched for the longer of both timeouts. */
static void know(Watch *watch, const char *job, long long session) {
    if (watch->session != session || strcmp(watch->job, job) != 0)
        *watch = (Watch){.session = session, .timeout = me.timeout > 30 ? me.timeout : 30, .count = -1};
    copy_text(watch->job, sizeof watch->job, job);
    const Json *lock = watch->known ? NULL : read_lock(job, session), *holder = get(lock, "holder");
    if (lock == NULL)
        return;
    double timeout = 0;
    as_value(get(lock, "timeout"), &timeout);
    watch->known = true;
    watch->timeout = timeout < 0.2 ? 0.2 : timeout > 86400 ? 86400 : timeout;
    copy_text(watch->token, sizeof watch->token, get_text(lock, "token"));
    copy_text(watch->host, sizeof watch->host, get_text(holder, "host"));
    copy_text(watch->boot, sizeof watch->boot, get_text(holder, "boot"));
    copy_text(watch->pidns, sizeof watch->pidns, get_text(holder, "pidns"));
    watch->pid = get_whole(holder, "pid", 0);
    watch->ticks = get_whole(holder, "ticks", -1);
}

/* Whether the holder is certainly gone: anything else is unknown, and unknown is alive. */
static bool is_dead(const Watch *watch) {
    char state;
    long long ticks;
    if (watch->boot[0] == '\0' || watch->pidns[0] == '\0' || watch->pid <= 0 || watch->pid > INT_MAX ||
        strcmp(watch->host, self.host) != 0 || strcmp(watch->boot, self.boot) != 0 || strcmp(watch->pidns, self.pidns) != 0)
        return false;
    if (watch->pid == self.pid && watch->ticks == self.ticks && self.ticks >= 0)
        return strcmp(watch->token, me.token) != 0; /* this very process, before an execv */
    if (kill((pid_t)watch->pid, 0) != 0 && errno != EPERM)
        return errno == ESRCH;
    if (!read_stat(watch->pid, &state, &ticks))
        return false;
    if (watch->ticks >= 0 && ticks != watch->ticks)
        return true;
    Names threads;
    return (state == 'Z' || state == 'X') && list(text("/proc/%lld/task", watch->pid), &threads) && threads.size == 1;
}

/* Takes in a fresh listing of an open session, asked for at `started` and complete at `ended`. */
static Verdict observe(Watch *watch, double started, double ended, const Jobs *jobs) {
    int some, taken;
    long long count = beat_of(jobs, BEAT, watch->job, watch->session, watch->token, &some);
    beat_of(jobs, TAKEN, watch->job, watch->session, watch->token, &taken);
    if (watch->known && some == 0 && taken > 0)
        return VERDICT; /* somebody has reached it: anyone may finish that */
    bool slow = ended - started > watch->timeout / 6, gap = started - watch->before > watch->timeout / 3;
    bool moved = watch->before > 0 && watch->count >= 0 && count > watch->count;
    if (watch->before == 0 || gap || count != watch->count || some != watch->some) {
        watch->first = slow ? 0 : ended; /* the window starts again: it was cut off, not they */
        watch->looks = 1;
    } else if (slow || watch->first == 0) {
        watch->first = slow ? 0 : ended;
        watch->looks = 1;
    } else {
        watch->looks++;
    }
    watch->before = ended;
    watch->some = some;
    watch->count = count > watch->count || some == 0 ? count : watch->count;
    if (moved)
        return ALIVE;
    return watch->first > 0 && watch->looks >= 3 && started - watch->first >= watch->timeout ? EXPIRED : WATCHING;
}

/* Closes a session by the very beats that were watched; false: its holder has moved on. */
static bool close_session(const Watch *watch, const Jobs *jobs, const char *reason) {
    for (size_t i = 0; i < jobs->size; i++) {
        JobFile file = jobs->at[i];
        if (!is_beat(&file, BEAT, watch->job, watch->session, watch->token))
            continue;
        const char *taken = text("%s/jobs/%s.%lld.%s.taken.%lld", run, file.job, file.session, file.token, file.count);
        if (rename(text("%s/jobs/%s", run, file.name), taken) != 0 && !is_present(taken))
            return false;
    }
    if (put_end(watch->job, watch->session, "", "crashed", reason) < 0)
        fail_at(job_path(watch->job, watch->session, "end"));
    sweep(watch->job);
    return true;
}

/* One look at an open session of somebody else. */
static bool close_if_over(Watch *watch, double started, double ended, const Jobs *jobs, Verdict *verdict) {
    *verdict = observe(watch, started, ended, jobs);
    bool dead = watch->known && is_dead(watch);
    if (!dead && *verdict != EXPIRED && *verdict != VERDICT)
        return false;
    bool closed = close_session(watch, jobs, dead ? "proved dead" : "expired");
    watch->session = 0; /* whatever is there now is watched anew */
    return closed;
}

/* ---- Opening (4.1) ---- */

/* Bytes of the complete lines of a log from `start` on, up to the first NUL (4.7). */
static long long complete_lines(const char *path, long long start) {
    static char piece[1 << 16];
    long long complete = start, at = start;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t count = 0;
    bool hole = false;
    while (file >= 0 && !hole && (count = pread(file, piece, sizeof piece, (off_t)at)) > 0) {
        const char *nul = memchr(piece, 0, (size_t)count);
        size_t size = nul != NULL ? (size_t)(nul - piece) : (size_t)count;
        for (size_t i = size; i-- > 0;)
            if (piece[i] == '\n') {
                complete = at + (long long)i + 1;
                break;
            }
        hole = nul != NULL;
        at += count;
        keep_alive();
    }
    if (file >= 0)
        close(file);
    if (file < 0 || count < 0)
        fail_at(path);
    return complete;
}

/* What data.parquet says that it consumed of each log (6.9), NULL where there is none or it is of another run: the
 * value of the key `fsrun` in the footer, whose length stands at the end of the file. */
static const Json *consumed(long long session) {
    static const char key[] = "\x18\x05" "fsrun" "\x18"; /* two texts of Thrift, each with its length before it */
    const char *path = text("%s/data.parquet", run);
    Bytes end;
    if (!is_present(path) || !read_file(path, -8, 8, false, &end) || end.size != 8 || memcmp(end.at + 4, "PAR1", 4) != 0)
        return NULL;
    const unsigned char *length = (const unsigned char *)end.at;
    long long size = length[0] | length[1] << 8 | length[2] << 16 | (long long)length[3] << 24;
    if (size > MAX_RECORD || !read_file(path, -8 - size, size, false, &end))
        return NULL;
    for (const char *at = end.at, *stop = end.at + end.size; (size_t)(stop - at) > sizeof key; at++) {
        if (memcmp(at, key, sizeof key - 1) != 0)
            continue;
        size_t value = 0;
        at += sizeof key - 1;
        for (int shift = 0; at < stop && shift < 35; shift += 7) {
            value |= (size_t)(*at & 0x7F) << shift;
            if ((*at++ & 0x80) == 0)
                break;
        }
        const Json *found = (size_t)(stop - at) >= value ? parse((Bytes){at, value}) : NULL;
        const Json *token = get(get(found, "tokens"), text("%s.%lld", me.job, session));
        const char *mine = get_text(peek_lock(me.job, session), "token");
        return token == NULL || mine == NULL || is_text(token, mine) ? get(found, "sources") : NULL;
    }
    return NULL;
}

/* The fence over a session of somebody else: of each of its logs what is complete, never less than its
 * end or a data.parquet says. */
static Bytes fence_over(long long session) {
    const char *const folders[] = {"scalars", "media", "tables", "artifacts", text("system/%s", me.job)};
    const Json *sizes = get(record(job_path(me.job, session, "end")), "sizes"), *counted = consumed(session);
    Buffer fence = {0};
    add(&fence, "{");
    for (size_t i = 0; i < 5; i++) {
        const char *folder = folders[i], *of = i < 4 ? text("%s.", me.job) : "";
        const char *log = text("%s/%s%lld.jsonl", folder, of, session);
        long long size = get_whole(sizes, log, -1), least = get_whole(counted, log, -1);
        size = least > size ? least : size;
        Names names = names_in(text("%s/%s", run, folder));
        if (has(&names, last_part(log)))
            size = complete_lines(text("%s/%s", run, log), size > 0 ? size : 0);
        if (size >= 0)
            add(&fence, "%s\"%s\":%lld", fence.size > 1 ? "," : "", log, size);
    }
    add(&fence, "}");
    return content(&fence);
}

/* The highest lock of main that can be read, or NULL. */
static const Json *main_lock(const Jobs *jobs) {
    for (long long n = highest(jobs, "main"); n > 0; n--) {
        const Json *lock = stands(jobs, LOCK, "main", n) ? peek_lock("main", n) : NULL;
        if (lock != NULL)
            return lock;
    }
    return NULL;
}

/* Where the hand-over unit stands (2); NULL: it cannot be reached, which is not the same as empty. */
static const char *find_unit(const Json *lock) {
    const Json *stated = get(lock, "unit");
    const char *path = get_text(stated, "path"), *id = get_text(stated, "id");
    if (stated == NULL || stated->kind == J_NULL)
        return run;
    if (path == NULL || id == NULL || !is_text(get(peek_record(text("%s/unit.json", path)), "id"), id))
        return NULL;
    return path;
}

/* ---- Logs (6.8): one writer a file, one write a line ---- */

static const char *log_path(void) {
    return text("%s/scalars/%s.%lld.jsonl", run, me.job, me.session);
}

/* Opens the own log, afresh each time: what an old descriptor leads to may have been replaced. */
static int open_log(void) {
    int flags = O_WRONLY | O_APPEND | O_CLOEXEC | (me.logged == 0 ? O_CREAT : 0);
    struct stat facts;
    int file = open(log_path(), flags, 0664);
    if (file >= 0 && (fstat(file, &facts) != 0 || (long long)facts.st_size != me.logged)) {
        close(file);
        errno = ESTALE; /* not the log that this session wrote */
        return -1;
    }
    return file;
}

static bool push_log(void) {
    if (pending.sent == pending.size)
        return true;
    int file = open_log();
    if (file < 0)
        return false;
    bool good = write_all(file, (Bytes){pending.at + pending.sent, pending.size - pending.sent});
    int error = errno;
    if (good) {
        me.logged += (long long)(pending.size - pending.sent);
        pending.sent = pending.size;
    } else if (ftruncate(file, (off_t)me.logged) != 0) {
        fprintf(stderr, "fsrun-c: %s: a part of a line is left\n", log_path());
    }
    close(file);
    errno = error;
    return good;
}

static bool sync_log(void) {
    if (!push_log())
        return false;
    int file = pending.size > 0 ? open_log() : -1;
    if (pending.size > 0 && file < 0)
        return false;
    bool good = file < 0 || fsync(file) == 0;
    if (file >= 0)
        close(file);
    if (good) {
        me.synced = me.logged;
        pending.size = pending.sent = 0;
        pending.synced = now();
    }
    return good;
}

/* Writes a line; one that cannot be written is forgotten. */
static bool log_line(Bytes line) {
    if (pending.room - pending.size < line.size) {
        size_t room = 2 * (pending.size + line.size);
        char *more = realloc(pending.at, room);
        if (more == NULL)
            return false;
        pending.at = more;
        pending.room = room;
    }
    memcpy(pending.at + pending.size, line.at, line.size);
    pending.size += line.size;
    if (push_log())
        return true;
    pending.size -= line.size;
    return false;
}

/* ---- BLAKE2b of 16 bytes (RFC 7693), without a key ---- */

typedef struct {
    uint64_t state[8], count;
    unsigned char block[128];
    size_t used;
} Blake;

static const uint64_t blake_start[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static uint64_t turn(uint64_t word, int by) {
    return word >> by | word << (64 - by);
}

static void blake_compress(Blake *blake, bool last) {
    static const unsigned char order[10][17] = {
        "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
        "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
    };
    static const unsigned char at[8][4] = {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15},
                                           {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14}};
    uint64_t m[16], v[16];
    for (int i = 0; i < 16; i++) {
        m[i] = 0;
        for (int j = 8; j-- > 0;)
            m[i] = m[i] << 8 | blake->block[8 * i + j];
        v[i] = i < 8 ? blake->state[i] : blake_start[i - 8];
    }
    v[12] ^= blake->count;
    if (last)
        v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 8; i++) {
            const unsigned char *pair = &order[round % 10][2 * i];
            int first = pair[0] <= '9' ? pair[0] - '0' : pair[0] - 'a' + 10;
            int second = pair[1] <= '9' ? pair[1] - '0' : pair[1] - 'a' + 10;
            uint64_t *a = &v[at[i][0]], *b = &v[at[i][1]], *c = &v[at[i][2]], *d = &v[at[i][3]];
            *a += *b + m[first];
            *d = turn(*d ^ *a, 32);
            *c += *d;
            *b = turn(*b ^ *c, 24);
            *a += *b + m[second];
            *d = turn(*d ^ *a, 16);
            *c += *d;
            *b = turn(*b ^ *c, 63);
        }
    }
    for (int i = 0; i < 8; i++)
        blake->state[i] ^= v[i] ^ v[i + 8];
}

static void blake_add(Blake *blake, const unsigned char *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (blake->used == sizeof blake->block) { /* the last block is compressed as such, so never early */
            blake->count += blake->used;
            blake_compress(blake, false);
            blake->used = 0;
        }
        blake->block[blake->used++] = data[i];
    }
}

static void blake_end(Blake *blake, char out[33]) {
    blake->count += blake->used;
    memset(blake->block + blake->used, 0, sizeof blake->block - blake->used);
    blake_compress(blake, true);
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned)(blake->state[i / 8] >> 8 * (i % 8) & 0xFF));
}

/* ---- What was handed over, as far as is cheap to know (6.4) ---- */

typedef struct {
    const char *name; /* below the entry, "" where that is a file */
    long long size, mtime_ns;
    bool copied; /* a copy has a time of its own: none is stated */
    char sample[33];
} File;

typedef struct {
    File *at;
    size_t size, room;
} Files;

/* Facts of an open file; false: errno says why. */
static bool look_at_file(int file, File *found) {
    unsigned char block[4096];
    struct stat facts;
    if (fstat(file, &facts) != 0)
        return false;
    if (!S_ISREG(facts.st_mode)) {
        errno = EINVAL;
        return false;
    }
    Blake blake = {{0}, 0, {0}, 0};
    memcpy(blake.state, blake_start, sizeof blake.state);
    blake.state[0] ^= 0x01010000 ^ 16;
    found->size = (long long)facts.st_size;
    found->mtime_ns = (long long)facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec;
    bool whole = found->size <= 12288;
    const long long starts[3] = {0, whole ? 4096 : found->size - 4096, whole ? 8192 : found->size / 2};
    for (int i = 0; i < 3; i++) {
        ssize_t count = pread(file, block, sizeof block, (off_t)starts[i]);
        if (count < 0)
            return false;
        blake_add(&blake, block, (size_t)count);
    }
    blake_end(&blake, found->sample);
    return true;
}

static bool look_at(const char *path, File *found) {
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    bool good = look_at_file(file, found);
    int error = errno;
    close(file);
    errno = error;
    return good;
}

static int by_file_name(const void *a, const void *b) {
    return strcmp(((const File *)a)->name, ((const File *)b)->name);
}

/* Copies an open file to a new one, durably and in pieces, so that no fsync keeps the beat waiting for long. */
static bool copy_file(int from, const char *to) {
    static char piece[1 << 20];
    int file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0664);
    if (file < 0)
        return false;
    off_t at = 0;
    ssize_t count;
    bool good = true;
    while (good && (count = pread(from, piece, sizeof piece, at)) != 0) {
        good = count > 0 && write_all(file, (Bytes){piece, (size_t)count});
        at += count > 0 ? count : 0;
        if (good && at % (64 << 20) == 0)
            good = fsync(file) == 0;
        keep_alive();
    }
    good = good && fsync(file) == 0;
    int error = errno;
    if (close(file) != 0 && good) {
        error = errno;
        good = false;
    }
    if (!good)
        unlink(to);
    errno = error;
    return good;
}

/* ---- Hand-over (5.1) ---- */

static int home; /* the folder that paths of commands are relative to */

/* Links the very file that is open, or copies it where links are refused. */
static bool stage_file(const char *from, const char *to, const char *name, Files *files) {
    struct stat opened, linked;
    File found = {.name = name};
    int file = openat(home, from, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    bool good = look_at_file(file, &found) && fstat(file, &opened) == 0;
    if (good && linkat(home, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0) {
        good = lstat(to, &linked) == 0 && linked.st_ino == opened.st_ino && linked.st_dev == opened.st_dev;
        if (!good)
            errno = ESTALE; /* replaced by the trainer just now */
    } else if (good) {
        File again = {.name = name};
        good = refuses_links(errno) && copy_file(file, to) && look_at_file(file, &again);
        if (good && (again.mtime_ns != found.mtime_ns || again.size != found.size)) {
            errno = EBUSY; /* written to meanwhile */
            good = false;
        }
        found.copied = true;
    }
    int error = errno;
    close(file);
    errno = error;
    if (!good)
        return false;
    files->at = grow(files->at, files->size, &files->room, sizeof *files->at);
    files->at[files->size++] = found;
    keep_alive();
    return true;
}

typedef struct Above {
    const struct Above *up;
    dev_t device;
    ino_t number;
    int depth;
} Above;

/* Stages a file or folder of the trainer; links are followed, what is neither is left out. */
static bool stage(const char *from, const char *to, const char *name, const Above *above, Files *files) {
    struct stat facts;
    if (fstatat(home, from, &facts, 0) != 0)
        return above != NULL && (errno == ENOENT || errno == ELOOP); /* a link to nothing */
    errno = is_utf8(name) ? 0 : EILSEQ;
    if (errno != 0)
        return false;
    if (S_ISREG(facts.st_mode))
        return stage_file(from, to, name, files);
    if (!S_ISDIR(facts.st_mode))
        return above != NULL;
    for (const Above *up = above; up != NULL; up = up->up)
        if (up->device == facts.st_dev && up->number == facts.st_ino)
            return true; /* a circle of links */
    Above here = {above, facts.st_dev, facts.st_ino, above != NULL ? above->depth + 1 : 1};
    errno = ELOOP;
    int opened = here.depth <= MAX_DEPTH ? openat(home, from, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *stream = opened >= 0 ? fdopendir(opened) : NULL;
    bool good = stream != NULL && mkdir(to, 02775) == 0;
    const struct dirent *item;
    while (good && (errno = 0, item = readdir(stream)) != NULL)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 && strncmp(item->d_name, ".nfs", 4) != 0)
            good = stage(text("%s/%s", from, item->d_name), text("%s/%s", to, item->d_name),
                         text("%s%s%s", name, name[0] != '\0' ? "/" : "", item->d_name), &here, files);
    int error = good ? 0 : errno;
    if (stream != NULL)
        closedir(stream);
    else if (opened >= 0)
        close(opened);
    errno = error;
    return good && sync_folder(to);
}

typedef struct {
    bool has_step, has_main, has_order;
    long long step, main_session, order;
} Facts;

/* A number with a comma before it, or nothing where it is not known. */
static void add_whole(Buffer *buffer, const char *key, bool known, long long whole) {
    if (known)
        add(buffer, ",\"%s\":%lld", key, whole);
}

static Bytes meta(const char *entry, const Facts *facts, bool folder, const Files *files, const char *source) {
    Buffer record = {0};
    long long size = 0;
    add(&record, "{\"protocol\":\"" PROTOCOL "\"");
    add_pair(&record, "entry", entry);
    add_whole(&record, "step", facts->has_step, facts->step);
    add_whole(&record, "main_session", facts->has_main, facts->main_session);
    add_whole(&record, "order", facts->has_order, facts->order);
    add_pair(&record, "kind", folder ? "folder" : "file");
    add_pair(&record, "source", source);
    add_pair(&record, "handed_over", rfc3339(wall_ns()));
    if (files->size > 0)
        add(&record, ",\"files\":[");
    for (size_t i = 0; i < files->size; i++) {
        const File *file = &files->at[i];
        add(&record, "%s{\"name\":", i > 0 ? "," : "");
        add_text(&record, bytes(file->name));
        add_whole(&record, "size", true, file->size);
        add_whole(&record, "mtime_ns", !file->copied, file->mtime_ns);
        add_pair(&record, "sample", file->sample);
        add(&record, "}");
        size += file->size;
    }
    add(&record, files->size > 0 ? "],\"size\":%lld}\n" : ",\"size\":%lld}\n", size);
    return content(&record);
}

static const char *meta_path(const char *entry) {
    return text("%s/meta/%s.json", unit, entry);
}

/* Every name that is reserved, or that a file in queue/ has. */
static Names taken_names(void) {
    Names metas = names_in(text("%s/meta", unit)), queue = names_in(text("%s/queue", unit));
    Names taken = {take_room(&scratch, (metas.size + queue.size + 1) * sizeof *taken.at), 0};
    for (size_t i = 0; i < metas.size; i++)
        if (ends_with(metas.at[i], ".json"))
            taken.at[taken.size++] = without(metas.at[i], 5);
    for (size_t i = 0; i < queue.size; i++)
        taken.at[taken.size++] = queue.at[i];
    qsort(taken.at, taken.size, sizeof *taken.at, by_name);
    return taken;
}

/* Publishes what is staged; false: another file has that name. */
static bool publish(const char *temp, const char *target, bool folder) {
    int done = folder ? rename(temp, target) : link(temp, target), error = errno;
    if (done == 0 || (!folder && is_same(temp, target)))
        return true;
    if (folder && !is_present(temp) && is_present(target))
        return true; /* a lost reply */
    if (!folder && refuses_links(error)) {
        if (is_present(target))
            return false;
        if (rename(temp, target) == 0)
            return true;
        error = errno;
    }
    if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR || error == EISDIR)
        return false;
    remove_tree(temp);
    errno = error;
    fail_at(target);
}

static const char *enqueue(const char *path, const char *name, long long step) {
    static long long last_order;
    long long order = wall_ns();
    last_order = order > last_order ? order : last_order + 1; /* rises with every hand-over of a process */
    Facts facts = {true, true, true, step, me.session, last_order};
    Files files = {NULL, 0, 0};
    const char *temp = temporary(text("%s/queue", unit));
    if (!stage(path, temp, "", NULL, &files) || files.size == 0) {
        int error = errno;
        remove_tree(temp);
        fail("%s: %s", path, error == 0 ? "it holds no file" : strerror(error));
    }
    qsort(files.at, files.size, sizeof *files.at, by_file_name);
    bool folder = is_folder(temp);
    for (;;) {
        facts.main_session = me.session; /* another one by now, where this one was closed by a false verdict */
        Names taken = taken_names();
        if (has(&taken, name) || !must_put(meta_path(name), meta(name, &facts, folder, &files, path))) {
            name = next_use(name, &taken);
            continue;
        }
        if (publish(temp, text("%s/queue/%s", unit, name), folder))
            break;
        unlink(meta_path(name)); /* it is not about the file that has this name */
    }
    unlink(temp);
    sync_folder(text("%s/queue", unit));
    return name;
}

static void write_finished(void) {
    protect();
    Buffer record = {0};
    add(&record, "{\"protocol\":\"" PROTOCOL "\",\"main_session\":%lld,\"token\":\"%s\"", me.session, me.token);
    add_pair(&record, "written", rfc3339(wall_ns()));
    add(&record, "}\n");
    if (!replace(text("%s/queue/FINISHED", unit), content(&record)))
        fail_at(text("%s/queue/FINISHED", unit));
}

/* ---- Claims and outcomes (5.2 to 5.5) ---- */

typedef enum { DONE, FAILED_ATTEMPT, SKIPPED, LOST, RETURNED, STATES } State;
static const char *const state_names[STATES] = {"done", "failed", "skipped", "lost", "returned"};

typedef struct {
    const char *job, *entry;
    long long session, attempt;
} Claim;

/* What an outcome says that is about to be put. */
typedef struct {
    State state;
    const char *reason;
    Bytes scores; /* an object, or empty */
    Facts facts;
    const char *started;
    double duration;
    long long lag; /* -1: not known */
    double time;
} Outcome;

/* The outcome that stands under an attempt, and the claim that it is about: no session of nobody, where it is not
 * understood (5.3). */
typedef struct {
    State state;
    const char *job;
    long long session;
} Standing;

static struct {
    bool there;
    Claim claim;
    Facts facts;
    const char *started;
    double since;
    const char *place; /* where a recoverer moved it when its session was taken for dead, or NULL */
} held;

static const char *claim_path(const Claim *claim) {
    return text("%s/claimed/%s.%lld/%lld/%s", unit, claim->job, claim->session, claim->attempt, claim->entry);
}

static const char *waiting_path(const char *entry, long long attempt) {
    return attempt == 1 ? text("%s/queue/%s", unit, entry) : text("%s/retry/%lld/%s", unit, attempt, entry);
}

static const char *outcome_path(const char *entry, long long attempt) {
    return text("%s/evals/%s.%lld.json", run, entry, attempt);
}

/* A rename that is protected work, in the hands of `session` (0: whichever is held). A folder of the unit may be made
 * anew, the unit itself may not. */
static bool protected_move(const char *from, const char *to, long long session) {
    for (int tries = 0; tries < 2; tries++) {
        if (strncmp(to, unit, strlen(unit)) == 0)
            make_folders(unit, folder_of(to) + strlen(unit) + 1);
        protect();
        if (session > 0 && session != me.session)
            return false;
        if (move(from, to))
            return true;
        if (!is_present(from))
            break; /* else somebody has removed the empty folder */
    }
    return false;
}

static const Json *read_meta(const char *entry) {
    Names metas = names_in(text("%s/meta", unit));
    return has(&metas, text("%s.json", entry)) ? record(meta_path(entry)) : NULL;
}

static Facts facts_of(const char *entry) {
    const Json *found = read_meta(entry);
    Facts facts = {0};
    facts.has_step = as_whole(get(found, "step"), &facts.step) || step_of_name(entry, &facts.step);
    facts.has_main = as_whole(get(found, "main_session"), &facts.main_session);
    facts.has_order = as_whole(get(found, "order"), &facts.order);
    return facts;
}

/* The first difference between an entry and its meta (5.1), or NULL. A key that is absent is not compared. */
static const char *difference(const char *path, const Json *meta) {
    const Json *files = get(meta, "files");
    const char *listed = NULL;
    for (const Json *item = files != NULL ? files->first : NULL; item != NULL; item = item->next) {
        const char *name = get_text(item, "name"), *sample = get_text(item, "sample");
        if (name == NULL || name[0] == '/' || strstr(name, "..") != NULL)
            return "a file of the meta has no name";
        const char *full = text("%s%s%s", path, name[0] != '\0' ? "/" : "", name);
        if (listed == NULL || strcmp(listed, folder_of(full)) != 0) {
            listed = folder_of(full);
            names_in(listed); /* no name is looked up before its folder was listed afresh (8.1) */
        }
        File found = {.name = name};
        if (!look_at(full, &found))
            return text("%s: %s", full, strerror(errno));
        if (found.size != get_whole(item, "size", found.size))
            return text("%s has %lld bytes", full, found.size);
        if (found.mtime_ns != get_whole(item, "mtime_ns", found.mtime_ns))
            return text("%s was written again", full);
        if (sample != NULL && strcmp(sample, found.sample) != 0)
            return text("%s has other bytes", full);
        keep_alive();
    }
    return NULL;
}

/* Reserves the next name of an entry for what stands at `path` (5.2), with what the old meta says where it is about
 * that: a plain writer may have used the name before or after. */
static const char *reserve_next(const char *entry, const char *path) {
    const Json *old = read_meta(entry);
    if (old != NULL && difference(path, old) != NULL)
        old = NULL;
    for (;;) {
        Names taken = taken_names();
        const char *name = next_use(entry, &taken);
        Facts facts = {.has_order = true, .order = wall_ns()};
        Files files = {NULL, 0, 0};
        File file = {.name = ""};
        Buffer data = {0};
        if (old != NULL) {
            add(&data, "{\"entry\":");
            add_text(&data, bytes(name));
            for (const Json *value = old->first; value != NULL; value = value->next) {
                if (compare(value->key, bytes("entry")) == 0)
                    continue;
                add(&data, ",");
                add_text(&data, value->key);
                add(&data, ":");
                add_bytes(&data, value->raw.at, value->raw.size);
            }
            add(&data, "}\n");
        } else {
            facts.has_step = step_of_name(entry, &facts.step);
            if (!is_folder(path) && look_at(path, &file))
                files = (Files){&file, 1, 1};
            Bytes fresh = meta(name, &facts, is_folder(path), &files, entry);
            add_bytes(&data, fresh.at, fresh.size);
        }
        if (must_put(meta_path(name), content(&data)))
            return name;
    }
}

static bool next_name(Claim *claim) {
    Claim renamed = *claim;
    renamed.entry = reserve_next(claim->entry, claim_path(claim));
    bool there = protected_move(claim_path(claim), claim_path(&renamed), 0);
    *claim = renamed;
    return there;
}

static bool understand(const Json *found, Standing *standing) {
    const char *state = get_text(found, "state");
    standing->job = get_text(found, "job");
    standing->session = get_whole(found, "session", 0);
    for (standing->state = DONE; standing->state < STATES; standing->state++)
        if (state != NULL && strcmp(state, state_names[standing->state]) == 0)
            return standing->job != NULL && standing->session > 0 && get_text(found, "entry") != NULL &&
                   get_whole(found, "attempt", 0) > 0;
    return false;
}

/* The outcome under an attempt, from a fresh listing; one that is being written where links are refused is waited
 * for. False: none is there. */
static bool find_standing(const char *entry, long long attempt, Standing *standing) {
    const char *path = outcome_path(entry, attempt);
    for (double began = now();; nap(me.timeout / 24)) {
        Bytes whole;
        if (!is_present(path))
            return false;
        if (read_file(path, 0, MAX_RECORD + 1, false, &whole) && whole.size > 0 && whole.at[whole.size - 1] == '\n') {
            if (!understand(record(path), standing))
                *standing = (Standing){FAILED_ATTEMPT, "", 0}; /* about nobody's claim: its name is used up */
            return true;
        }
        keep_alive();
        if (now() - began > me.timeout) { /* its writer may put no other by now (11) */
            protect();
            move(path, temporary(text("%s/evals", run)));
        }
    }
}

static bool put_outcome(const Claim *claim, const Outcome *outcome) {
    bool mine = strcmp(claim->job, me.job) == 0 && claim->session == me.session;
    Buffer record = {0};
    add(&record, "{\"protocol\":\"" PROTOCOL "\"");
    add_pair(&record, "entry", claim->entry);
    add(&record, ",\"attempt\":%lld", claim->attempt);
    add_pair(&record, "state", state_names[outcome->state]);
    add_pair(&record, "reason", outcome->reason);
    add_whole(&record, "step", outcome->facts.has_step, outcome->facts.step);
    add_whole(&record, "main_session", outcome->facts.has_main, outcome->facts.main_session);
    add_whole(&record, "order", outcome->facts.has_order, outcome->facts.order);
    add_whole(&record, "lag_steps", outcome->lag >= 0, outcome->lag);
    if (outcome->scores.size > 0)
        add(&record, ",\"scores\":%s", outcome->scores.at);
    if (outcome->started != NULL) {
        add_pair(&record, "started", outcome->started);
        add(&record, ",\"duration_s\":%.3f,\"time\":%.6f", outcome->duration, outcome->time);
    }
    add_pair(&record, "ended", rfc3339(wall_ns()));
    add_pair(&record, "job", claim->job);
    add(&record, ",\"session\":%lld,\"token\":\"%s\",\"by\":%s}\n", claim->session, mine ? me.token : "", me.holder);
    return must_put(outcome_path(claim->entry, claim->attempt), content(&record));
}

static bool is_about(const Standing *standing, const Claim *claim) {
    return standing->session == claim->session && strcmp(standing->job, claim->job) == 0;
}

/* Puts the outcome of a claim, which may get another name by that; false: the claim is gone. `standing`: what stands
 * under its attempt now, whoever put it. After a crash: whoever recovers goes on from there. */
static bool settle(Claim *claim, const Outcome *outcome, Standing *standing) {
    for (;;) {
        if (put_outcome(claim, outcome)) {
            *standing = (Standing){outcome->state, claim->job, claim->session};
            return true;
        }
        if (!find_standing(claim->entry, claim->attempt, standing))
            continue; /* half a record was taken aside */
        if (is_about(standing, claim))
            return true;
        if (!next_name(claim)) /* an earlier file has this name */
            return false;
    }
}

/* ---- best/ (5.6, 5.7) ---- */

typedef struct {
    bool there, max;
    Bytes tag;
    long long keep;
} Rule;

static Rule find_rule(void) {
    Rule rule = {false, false, {"", 0}, 1};
    const char *path = text("%s/best.json", run);
    if (!is_present(path))
        return rule;
    const Json *found = record(path), *tag = get(found, "tag");
    bool max = is_text(get(found, "mode"), "max");
    if ((!max && !is_text(get(found, "mode"), "min")) || tag == NULL || tag->kind != J_TEXT)
        fail("%s cannot be read", path);
    return (Rule){true, max, tag->text, get_whole(found, "keep", 1)};
}

typedef struct {
    const char *entry;
    bool ranked, has_step;
    double score;
    long long step;
} Kept;

/* An entry with the score of its `done` outcome. */
static Kept kept(const char *entry, const Rule *rule, const Names *evals) {
    Kept found = {entry, false, false, 0, 0};
    for (size_t i = 0; i < evals->size; i++) {
        const char *of;
        long long attempt;
        if (!outcome_name(evals->at[i], &of, &attempt) || strcmp(of, entry) != 0)
            continue;
        const Json *outcome = record(outcome_path(entry, attempt)), *score = get(outcome, "scores");
        if (!is_text(get(outcome, "state"), "done"))
            continue;
        for (score = score != NULL ? score->first : NULL; score != NULL; score = score->next)
            if (compare(score->key, rule->tag) == 0)
                found.ranked = as_value(score, &found.score);
        found.has_step = as_whole(get(outcome, "step"), &found.step);
    }
    return found;
}

/* Ranked entries by score (NaN worst), then the earlier step, then the name; then the others. */
static int by_rank(const Kept *a, const Kept *b, bool max) {
    if (a->ranked != b->ranked)
        return a->ranked ? -1 : 1;
    if (isnan(a->score) != isnan(b->score))
        return isnan(a->score) ? 1 : -1;
    if (a->score < b->score || a->score > b->score)
        return (a->score > b->score) == max ? -1 : 1;
    if (a->has_step != b->has_step)
        return a->has_step ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return strcmp(a->entry, b->entry);
}

/* How many entries of best/ are strictly better. */
static long long better(const Kept *mine, const Kept *all, size_t size, bool max) {
    long long count = 0;
    for (size_t i = 0; i < size; i++)
        count += all[i].ranked && strcmp(all[i].entry, mine->entry) != 0 && by_rank(&all[i], mine, max) < 0;
    return count;
}

static Kept *all_kept(const Rule *rule, const Names *evals, size_t *size) {
    Names names = names_in(text("%s/best", run));
    Kept *all = take_room(&scratch, (names.size + 1) * sizeof *all);
    *size = 0;
    for (size_t i = 0; i < names.size; i++, keep_alive())
        if (is_entry(names.at[i]))
            all[(*size)++] = kept(names.at[i], rule, evals);
    return all;
}

/* Deletes from best/ what has at least `keep` strictly better ones beside it. */
static void prune(void) {
    Rule rule = find_rule();
    size_t size;
    if (!rule.there || rule.keep < 1)
        return;
    Names evals = names_in(text("%s/evals", run));
    Kept *all = all_kept(&rule, &evals, &size);
    for (size_t i = 0; i < size; i++)
        if (all[i].ranked && better(&all[i], all, size, rule.max) >= rule.keep) {
            protect();
            discard(run, text("best/%s", all[i].entry));
        }
}

static bool is_shared(const char *path) {
    struct stat facts;
    if (!is_folder(path))
        return lstat(path, &facts) == 0 && facts.st_nlink > 1;
    Names names = names_in(path);
    for (size_t i = 0; i < names.size; i++)
        if (is_shared(text("%s/%s", path, names.at[i])))
            return true;
    return false;
}

static bool copy_tree(const char *from, const char *to) {
    if (!is_folder(from)) {
        int file = open(from, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        bool good = file >= 0 && copy_file(file, to);
        int error = errno;
        if (file >= 0)
            close(file);
        errno = error;
        return good;
    }
    Names names;
    if (mkdir(to, 02775) != 0 || !list(from, &names))
        return false;
    for (size_t i = 0; i < names.size; i++)
        if (!copy_tree(text("%s/%s", from, names.at[i]), text("%s/%s", to, names.at[i])))
            return false;
    return sync_folder(to);
}

/* Moves a claim to best/: by a rename, or by a copy where its files have other names or the unit stands elsewhere. */
static void keep_entry(const Claim *claim) {
    const char *from = claim_path(claim), *to = text("%s/best/%s", run, claim->entry);
    bool elsewhere = unit != run;
    make_folders(run, "best");
    if (!elsewhere && !is_shared(from)) {
        protected_move(from, to, 0);
        sync_folder(text("%s/best", run));
        return;
    }
    Rule rule = find_rule();
    Names evals = names_in(text("%s/evals", run));
    size_t size;
    Kept *all = all_kept(&rule, &evals, &size), mine = kept(claim->entry, &rule, &evals);
    bool surplus = mine.ranked && rule.keep > 0 && better(&mine, all, size, rule.max) >= rule.keep;
    if (!surplus && !is_present(to) && is_present(from)) {
        const char *temp = temporary(text("%s/best", run));
        if (!copy_tree(from, temp)) {
            int error = errno;
            remove_tree(temp);
            errno = error;
            fail_at(from);
        }
        protect();
        move(temp, to);
        sync_folder(text("%s/best", run));
    }
    protect();
    discard(unit, from + strlen(unit) + 1);
}

/* Moves a claim as the outcome that stands says (5.3); one that is gone was moved by another. */
static const char *move_claim(const Claim *claim, State state) {
    int failed = 0, lost = 0;
    Names evals = names_in(text("%s/evals", run));
    for (long long k = 1; k <= claim->attempt && (state == FAILED_ATTEMPT || state == LOST); k++) {
        Standing before;
        if (!has(&evals, last_part(outcome_path(claim->entry, k))))
            continue;
        if (understand(record(outcome_path(claim->entry, k)), &before)) {
            failed += before.state == FAILED_ATTEMPT;
            lost += before.state == LOST;
        }
    }
    if (state == DONE && find_rule().there) {
        keep_entry(claim);
        return "best";
    }
    if (state == DONE || state == SKIPPED) {
        protect();
        discard(unit, claim_path(claim) + strlen(unit) + 1);
        return "trash";
    }
    if ((state == FAILED_ATTEMPT && failed >= 3) || (state == LOST && lost >= 10)) {
        protected_move(claim_path(claim), text("%s/failed/%s", unit, claim->entry), 0);
        return "failed";
    }
    protected_move(claim_path(claim), waiting_path(claim->entry, claim->attempt + 1), 0);
    return "retry";
}

/* The whole of an outcome about a claim whose holder does not say more; returns the place. */
static const char *bring_home(Claim claim, State state, const char *reason) {
    Outcome outcome = {.state = state, .reason = reason, .facts = facts_of(claim.entry), .lag = -1};
    Standing standing;
    return settle(&claim, &outcome, &standing) ? move_claim(&claim, standing.state) : NULL;
}

/* ---- The evaluator's look ---- */

static Watch *watches; /* of sessions that hold claims, that hand over, and of main */
static size_t watch_count;
static bool is_evaluator;

static Watch *watch_of(const char *job, long long session) {
    Watch *free_one = NULL;
    for (size_t i = 0; i < watch_count; i++) {
        if (watches[i].session == session && strcmp(watches[i].job, job) == 0)
            return &watches[i];
        if (watches[i].session == 0)
            free_one = &watches[i];
    }
    if (free_one == NULL) {
        Watch *more = realloc(watches, (watch_count + 1) * sizeof *more);
        if (more == NULL)
            fail("out of memory");
        watches = more;
        free_one = &watches[watch_count++];
        *free_one = (Watch){.session = 0};
    }
    return free_one;
}

static double watch_pause(void) {
    double pause = me.timeout / 6;
    for (size_t i = 0; i < watch_count; i++)
        if (watches[i].session > 0 && watches[i].timeout / 6 < pause)
            pause = watches[i].timeout / 6;
    return pause;
}

/* Looks at all that is watched, and closes what is dead or expired. True: something was closed. */
static bool look_at_watches(void) {
    double started = now();
    Jobs jobs = jobs_now();
    double ended = now();
    bool closed = false;
    Verdict verdict;
    for (size_t i = 0; i < watch_count; i++) {
        Watch *watch = &watches[i];
        if (watch->session == 0)
            continue;
        if (!watch->wanted || is_closed(&jobs, watch->job, watch->session)) {
            watch->session = 0;
            continue;
        }
        know(watch, text("%s", watch->job), watch->session);
        closed = close_if_over(watch, started, ended, &jobs, &verdict) || closed;
    }
    return closed;
}

static void want(const char *job, long long session, bool hands_over) {
    Watch *watch = watch_of(job, session);
    if (watch->session == 0)
        *watch = (Watch){.session = session, .timeout = 30, .count = -1};
    copy_text(watch->job, sizeof watch->job, job);
    watch->wanted = true;
    watch->hands_over = hands_over;
}

typedef struct {
    Claim *at;
    size_t size, room;
} Claims;

static Claims list_claims(void) {
    Claims claims = {NULL, 0, 0};
    Names folders = names_in(text("%s/claimed", unit));
    for (size_t i = 0; i < folders.size; i++) {
        Claim claim = {NULL, NULL, 0, 0};
        if (!claim_folder(folders.at[i], &claim.job, &claim.session))
            continue;
        const char *folder = text("%s/claimed/%s", unit, folders.at[i]);
        Names attempts = names_in(folder);
        for (size_t j = 0; j < attempts.size; j++) {
            if (!read_number(attempts.at[j], strlen(attempts.at[j]), &claim.attempt) || claim.attempt == 0)
                continue;
            Names entries = names_in(text("%s/%s", folder, attempts.at[j]));
            for (size_t k = 0; k < entries.size; k++) {
                if (!is_entry(entries.at[k]))
                    continue;
                claim.entry = entries.at[k];
                claims.at = grow(claims.at, claims.size, &claims.room, sizeof *claims.at);
                claims.at[claims.size++] = claim;
            }
        }
    }
    return claims;
}

static bool is_own(const char *job, long long session) {
    return session == me.session && strcmp(job, me.job) == 0;
}

static void clear_claims(const char *job, long long session) {
    const char *folder = text("%s/claimed/%s.%lld", unit, job, session);
    Names attempts = names_in(folder);
    for (size_t i = 0; i < attempts.size; i++)
        rmdir(text("%s/%s", folder, attempts.at[i])); /* empty ones go, others stay */
    rmdir(folder);
}

/* Recovers the claims of closed sessions (5.5) and brings home own ones that an error left behind. Says whether
 * somebody holds a claim, and whether a side job that hands over is open (5.8). */
static void recover(bool *others, bool *coming) {
    Jobs jobs = jobs_now();
    Claims claims = list_claims();
    for (size_t i = 0; i < watch_count; i++)
        watches[i].wanted = false;
    for (size_t i = 0; i < claims.size; i++)
        if (!is_own(claims.at[i].job, claims.at[i].session))
            want(claims.at[i].job, claims.at[i].session, false);
    for (size_t i = 0; i < jobs.size; i++) {
        JobFile file = jobs.at[i];
        if (file.kind != LOCK || is_closed(&jobs, file.job, file.session) || strcmp(file.job, me.job) == 0)
            continue;
        const Json *hands_over = get(peek_lock(file.job, file.session), "hands_over");
        bool comes = strcmp(file.job, "main") != 0 && hands_over != NULL && hands_over->kind == J_TRUE;
        if (strcmp(file.job, "main") == 0 || comes)
            want(file.job, file.session, comes);
    }
    look_at_watches();
    jobs = jobs_now();
    *others = *coming = false;
    for (size_t i = 0; i < claims.size; i++) {
        const Claim *claim = &claims.at[i];
        if (is_own(claim->job, claim->session)) {
            if (!held.there || strcmp(held.claim.entry, claim->entry) != 0)
                bring_home(*claim, RETURNED, "left behind by an error");
        } else if (is_closed(&jobs, claim->job, claim->session)) {
            bring_home(*claim, LOST, "its evaluator was closed");
            clear_claims(claim->job, claim->session);
        } else {
            *others = true;
        }
    }
    for (size_t i = 0; i < watch_count; i++)
        *coming = *coming || (watches[i].session > 0 && watches[i].hands_over);
}

typedef struct {
    const char *entry;
    long long attempt;
    bool tried; /* it failed or was lost before: that may happen again, so it comes after all else */
    Facts facts;
} Waiting;

static int by_turn(const void *a, const void *b) {
    const Waiting *x = a, *y = b;
    const long long order[][2] = {
        {x->tried, y->tried},
        {!x->facts.has_step, !y->facts.has_step},
        {x->facts.step, y->facts.step},
        {x->facts.main_session, y->facts.main_session},
        {x->facts.order, y->facts.order},
    };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i][0] != order[i][1])
            return order[i][0] < order[i][1] ? -1 : 1;
    return strcmp(x->entry, y->entry);
}

/* What waits, in the order in which it is evaluated. */
static Waiting *list_waiting(size_t *size) {
    Names retry = names_in(text("%s/retry", unit)), queue;
    if (!list(text("%s/queue", unit), &queue) && (unit != run || !is_absent(errno)))
        fail("%s/queue cannot be reached", unit); /* which is not empty (2) */
    size_t room = queue.size;
    for (size_t i = 0; i < retry.size; i++)
        room += names_in(text("%s/retry/%s", unit, retry.at[i])).size;
    Waiting *all = take_room(&scratch, (room + 1) * sizeof *all);
    *size = 0;
    for (size_t i = 0; i < retry.size + 1; i++) {
        long long attempt = 1;
        if (i < retry.size && (!read_number(retry.at[i], strlen(retry.at[i]), &attempt) || attempt == 0))
            continue;
        Names names = i < retry.size ? names_in(text("%s/retry/%s", unit, retry.at[i])) : queue;
        for (size_t j = 0; j < names.size && *size < room; j++) {
            Standing before;
            if (!is_entry(names.at[j]))
                continue;
            bool known = attempt > 1 && understand(record(outcome_path(names.at[j], attempt - 1)), &before);
            bool tried = attempt > 1 && !(known && before.state == RETURNED);
            all[(*size)++] = (Waiting){names.at[j], attempt, tried, facts_of(names.at[j])};
        }
    }
    qsort(all, *size, sizeof *all, by_turn);
    return all;
}

/* Names that this session has claimed from queue/: a second file may not get one path with the first (5.2). */
typedef struct Used {
    struct Used *next;
    const char *entry;
    long long session;
} Used;
static Used *used_names;

static bool was_used(const char *entry) {
    for (const Used *used = used_names; used != NULL; used = used->next)
        if (used->session == me.session && strcmp(used->entry, entry) == 0)
            return true;
    Used *used = take_room(&lasting, sizeof *used);
    *used = (Used){used_names, keep(entry), me.session}; /* before the rename: if nobody can say that it happened */
    used_names = used;
    return false;
}

/* One rename claims (5.2); false: another was faster. */
static bool claim_entry(const Waiting *waiting, Claim *claim) {
    const char *from = waiting_path(waiting->entry, waiting->attempt);
    *claim = (Claim){me.job, waiting->entry, me.session, waiting->attempt};
    bool first = waiting->attempt == 1, used = first && was_used(waiting->entry);
    if (used)
        claim->entry = reserve_next(waiting->entry, from);
    if (!protected_move(from, claim_path(claim), claim->session))
        return false;
    Standing standing;
    if (first && !used && find_standing(claim->entry, 1, &standing) && !is_about(&standing, claim))
        return next_name(claim);
    return true;
}

/* Status of the highest session of a job (4.8), and the reason of its end or NULL. */
static const char *status_of(const Jobs *jobs, const char *job, long long session, const char **reason) {
    *reason = NULL;
    if (!stands(jobs, END, job, session))
        return "running";
    const Json *end = record(job_path(job, session, "end"));
    const char *status = get_text(end, "status");
    *reason = get_text(end, "reason");
    bool known = status != NULL && (strcmp(status, "finished") == 0 || strcmp(status, "failed") == 0);
    return known ? status : "crashed";
}

/* The last step that main has logged, in the newest session that logged any. */
static bool last_step(const Jobs *jobs, long long *step) {
    Names logs = names_in(text("%s/scalars", run));
    for (long long n = highest(jobs, "main"); n > 0; n--) {
        const char *log = text("main.%lld.jsonl", n);
        Bytes tail;
        if (!has(&logs, log) || !read_file(text("%s/scalars/%s", run, log), -(1 << 16), 1 << 16, true, &tail))
            continue;
        for (size_t end = tail.size; end > 0;) {
            size_t start = end - 1;
            while (start > 0 && tail.at[start - 1] != '\n')
                start--;
            if (tail.at[end - 1] == '\n' && as_whole(get(parse((Bytes){tail.at + start, end - start}), "step"), step))
                return true;
            end = start;
        }
    }
    return false;
}

/* Whether FINISHED stands and is obeyed (5.8). */
static bool is_finished(const Jobs *jobs) {
    const char *path = text("%s/queue/FINISHED", unit), *reason;
    long long main = highest(jobs, "main");
    Bytes found;
    if (!is_present(path) || !read_file(path, 0, 1, false, &found))
        return false;
    if (main == 0)
        return true;
    long long named = get_whole(record(path), "main_session", 0);
    return named > 0 ? named == main : strcmp(status_of(jobs, "main", main, &reason), "finished") == 0;
}

/* Whether an evaluator that found nothing to do may end (5.8). */
static bool may_end(bool others, bool coming) {
    static long long gone; /* the session of main that is gone, and since when this process knows */
    static double since;
    Jobs jobs = jobs_now();
    long long main = highest(&jobs, "main");
    const char *reason, *status = main > 0 ? status_of(&jobs, "main", main, &reason) : "running";
    bool finished = strcmp(status, "finished") == 0, is_gone = !finished && strcmp(status, "running") != 0;
    if (!is_gone || gone != main) {
        gone = is_gone ? main : 0;
        since = now();
    }
    bool silent = is_gone && now() - since >= (4 * me.timeout > LINGER ? 4 * me.timeout : LINGER);
    return !coming && ((!others && (finished || is_finished(&jobs))) || silent);
}

/* Takes over into the session that continues what its predecessor had claimed (5.4), and writes FINISHED again (5.8). */
static void catch_up(void) {
    if (me.state != OPEN)
        return;
    if (me.finished != 0 && me.finished != me.session) {
        write_finished();
        me.finished = me.session;
    }
    if (!held.there || held.place != NULL || held.claim.session == me.session)
        return;
    Claim claim = held.claim, next;
    Outcome outcome = {.state = RETURNED, .reason = "adopted", .facts = held.facts, .lag = -1};
    Standing standing;
    held.place = "retry"; /* unless it comes along */
    if (!settle(&claim, &outcome, &standing))
        return;
    next = (Claim){me.job, keep(claim.entry), me.session, claim.attempt + 1};
    if (standing.state != RETURNED)
        held.place = move_claim(&claim, standing.state);
    else if (protected_move(claim_path(&claim), claim_path(&next), next.session)) {
        held.claim = next;
        held.place = NULL;
    }
}

/* What is done while nothing is asked: a beat, the log made durable, a look at those that are watched. */
static void tend(void) {
    static double looked;
    if (setjmp(back) == 0) {
        keep_alive();
        catch_up();
        if (me.state == OPEN && pending.size > 0 && now() - pending.synced >= 1)
            sync_log();
        if (me.state == OPEN && now() - me.viewed >= me.timeout)
            write_view("running", NULL);
        if (me.state == OPEN && is_evaluator && now() - looked >= watch_pause()) {
            looked = now();
            look_at_watches();
        }
    }
    clear(&scratch);
}

/* ---- What a run folder says (8) ---- */

typedef struct {
    const char *job, *key; /* key: of the outcome whose point it is, or NULL */
    Bytes tag, value;
    long long session, step;
    double time;                      /* -INFINITY: none */
    long long group, order, attempt;  /* of main's sessions; of the hand-over, where it is one of an outcome */
    size_t row;                       /* as they were logged */
    bool outcome, out;                /* out: void, or it does not stand */
} Point;

static Point *points;
static size_t point_count, point_room;

typedef struct {
    const char *key, *entry, *job;
    long long attempt, session, order;
    long long group;    /* of the main session that handed it over, -1: not known */
    const Json *record; /* NULL: not there yet, or not understood */
    State state;
    bool lined; /* a log has a line of it */
} Found;

static Found *outcomes;
static size_t outcome_count;

/* The outcomes of which a log has a line that counts. */
typedef struct Lined {
    struct Lined *next;
    const char *key;
} Lined;
static Lined *lined;

static int by_outcome_key(const void *a, const void *b) {
    return strcmp(((const Found *)a)->key, ((const Found *)b)->key);
}

static Found *find_outcome(const char *key) {
    Found wanted = {.key = key};
    return outcome_count > 0 ? bsearch(&wanted, outcomes, outcome_count, sizeof *outcomes, by_outcome_key) : NULL;
}

static void add_point(Point point) {
    if (point_count == point_room) {
        point_room = 2 * point_room + 256;
        Point *more = realloc(points, point_room * sizeof *more);
        if (more == NULL)
            fail("out of memory");
        points = more;
    }
    point.row = point_count;
    points[point_count++] = point;
}

/* Sessions of main that `continues` joins count as one (4.6): the first of them. */
static long long group_of(const Jobs *jobs, long long session) {
    while (session > 0 && stands(jobs, LOCK, "main", session)) {
        const Json *continues = get(peek_lock("main", session), "continues");
        if (continues == NULL || continues->kind != J_TRUE)
            break;
        session--;
    }
    return session;
}

/* How many bytes of a session's log the lock of the next one counts (4.7). */
static long long fence_of(const Jobs *jobs, const char *job, long long session, const char *log) {
    if (!stands(jobs, LOCK, job, session + 1))
        return LLONG_MAX;
    const Json *fence = get(peek_lock(job, session + 1), "fence");
    return fence == NULL || fence->kind != J_OBJECT ? LLONG_MAX : get_whole(fence, log, 0);
}

/* Tags and keys outlive the line that they stood in; each is kept once. */
static Bytes intern(Bytes from) {
    static struct Kept_text { struct Kept_text *next; Bytes text; } *table[1024];
    size_t hash = 5381;
    for (size_t i = 0; i < from.size; i++)
        hash = hash * 33 + (unsigned char)from.at[i];
    struct Kept_text **slot = &table[hash % 1024];
    for (struct Kept_text *known = *slot; known != NULL; known = known->next)
        if (compare(known->text, from) == 0)
            return known->text;
    struct Kept_text *fresh = take_room(&lasting, sizeof *fresh);
    char *at = take_room(&lasting, from.size + 1);
    memcpy(at, from.at, from.size);
    *fresh = (struct Kept_text){*slot, {at, from.size}};
    *slot = fresh;
    return fresh->text;
}

static Bytes keep_value(const Json *value, double real) {
    Buffer written = {0};
    add_value(&written, value, real);
    char *at = take_room(&lasting, written.size + 1);
    memcpy(at, written.at, written.size);
    return (Bytes){at, written.size};
}

/* Reads one line (8.2); false: it, or a value of it, is skipped. */
static bool read_line(Bytes line, const char *job, long long session, long long group) {
    const Json *record = parse_any(line, true), *entry = get(record, "entry"), *time = get(record, "time");
    Point point = {.job = job, .session = session, .group = group, .time = -INFINITY};
    if (record == NULL || record->kind != J_OBJECT || !as_whole(get(record, "step"), &point.step))
        return false;
    if (entry != NULL && entry->kind != J_NULL) {
        if (entry->kind != J_TEXT)
            return false;
        Lined *line_of = take_room(&lasting, sizeof *line_of);
        point.outcome = true;
        point.key = strlen(entry->text.at) == entry->text.size ? intern(entry->text).at : "";
        *line_of = (Lined){lined, point.key};
        lined = line_of;
    }
    if (time != NULL && time->kind == J_NUMBER)
        as_value(time, &point.time);
    bool whole = true;
    for (const Json *value = record->first; value != NULL; value = value->next) {
        double real;
        if (compare(value->key, bytes("step")) == 0 || compare(value->key, bytes("time")) == 0 ||
            compare(value->key, bytes("entry")) == 0 || value->kind == J_NULL)
            continue;
        if (!as_value(value, &real)) {
            whole = false;
            continue;
        }
        point.tag = intern(value->key);
        point.value = keep_value(value, real);
        add_point(point);
    }
    return whole;
}

typedef struct {
    const char *name, *job;
    long long session, piece; /* -1: the session's log, else a piece of its spill */
} Source;

static int by_reading(const void *a, const void *b) {
    const Source *x = a, *y = b;
    int order = strcmp(x->job, y->job);
    if (order != 0)
        return order;
    if (x->session != y->session)
        return x->session < y->session ? -1 : 1;
    return (x->piece > y->piece) - (x->piece < y->piece);
}

/* Reads `<job>.<n>.jsonl` or `<job>.<n>.s<i>.jsonl`. */
static bool is_source(const char *name, Source *source) {
    Split parts = split(name);
    *source = (Source){name, text("%.*s", (int)parts.sizes[0], name), 0, -1};
    if ((parts.count != 3 && parts.count != 4) || !is_part(&parts, parts.count - 1, "jsonl") ||
        !is_job(parts.parts[0], parts.sizes[0]) || !read_number(parts.parts[1], parts.sizes[1], &source->session))
        return false;
    return source->session > 0 && (parts.count == 3 || (parts.sizes[2] > 0 && parts.parts[2][0] == 's' &&
                                                        read_number(parts.parts[2] + 1, parts.sizes[2] - 1, &source->piece)));
}

/* Reads the complete lines of a log that count, and adds the numbers of those that were skipped. */
static void read_log(const Jobs *jobs, const Source *source, Buffer *skipped) {
    const char *log = text("scalars/%s", source->name);
    long long limit = source->piece < 0 ? fence_of(jobs, source->job, source->session, log) : LLONG_MAX;
    long long group = strcmp(source->job, "main") == 0 ? group_of(jobs, source->session) : source->session, number = 0;
    Bytes all;
    if (limit == 0 || !read_file(text("%s/%s", run, log), 0, limit, true, &all))
        return;
    size_t start = 0;
    const char *end;
    bool any = false;
    if (all.size >= 3 && memcmp(all.at, "\xEF\xBB\xBF", 3) == 0)
        start = 3;
    for (; (end = memchr(all.at + start, '\n', all.size - start)) != NULL; start = (size_t)(end - all.at) + 1) {
        Bytes line = {all.at + start, (size_t)(end - all.at) - start};
        Arena before = scratch;
        size_t used = before.top->used;
        number++;
        bool good = strspn(line.at, " \t\r") >= line.size || read_line(line, source->job, source->session, group);
        while (scratch.top != before.top) { /* what the line needed is given back */
            Block *below = scratch.top->below;
            free(scratch.top);
            scratch.top = below;
        }
        scratch.top->used = used;
        if (!good) {
            if (!any)
                add(skipped, "%s\"%s\":[", skipped->size > 0 ? "," : "", log);
            add(skipped, "%s%lld", any ? "," : "", number);
            any = true;
        }
    }
    if (any)
        add(skipped, "]");
}

static void read_outcomes(const Jobs *jobs) {
    Names evals = names_in(text("%s/evals", run));
    outcomes = take_room(&scratch, (evals.size + 1) * sizeof *outcomes);
    for (size_t i = 0; i < evals.size; i++) {
        Found found = {.group = -1};
        Standing standing;
        if (!outcome_name(evals.at[i], &found.entry, &found.attempt))
            continue;
        found.key = without(evals.at[i], 5);
        const Json *record = peek_record(text("%s/evals/%s", run, evals.at[i]));
        if (understand(record, &standing)) {
            long long main = get_whole(record, "main_session", 0);
            found.record = record;
            found.state = standing.state;
            found.job = standing.job;
            found.session = standing.session;
            found.group = main > 0 ? group_of(jobs, main) : -1;
            found.order = get_whole(record, "order", 0);
        }
        outcomes[outcome_count++] = found;
    }
    if (outcome_count > 0)
        qsort(outcomes, outcome_count, sizeof *outcomes, by_outcome_key);
}

/* Lines of outcomes that do not stand are ignored; of `done` ones that have no line the scores are points (5.9). */
static void add_outcome_points(void) {
    for (; lined != NULL; lined = lined->next) {
        Found *of_line = find_outcome(lined->key);
        if (of_line != NULL)
            of_line->lined = true;
    }
    for (size_t i = 0; i < point_count; i++) {
        Point *point = &points[i];
        const Found *of_line = point->outcome ? find_outcome(point->key) : NULL;
        point->out = point->outcome && of_line == NULL;
        if (of_line != NULL) {
            point->group = of_line->group;
            point->order = of_line->order;
            point->attempt = of_line->attempt;
        }
    }
    for (size_t i = 0; i < outcome_count; i++) {
        const Found *found = &outcomes[i];
        const Json *scores = get(found->record, "scores"), *time = get(found->record, "time");
        Point point = {.job = found->job, .key = found->key, .session = found->session, .group = found->group,
                       .order = found->order, .attempt = found->attempt, .time = -INFINITY, .outcome = true};
        if (found->record == NULL || found->lined || found->state != DONE ||
            !as_whole(get(found->record, "step"), &point.step))
            continue;
        if (time != NULL && time->kind == J_NUMBER)
            as_value(time, &point.time);
        double real;
        for (const Json *score = scores != NULL ? scores->first : NULL; score != NULL; score = score->next)
            if (as_value(score, &real)) {
                point.tag = intern(score->key);
                point.value = keep_value(score, real);
                add_point(point);
            }
    }
}

static bool is_main(const Point *point) {
    return !point->outcome && strcmp(point->job, "main") == 0;
}

static int rank(long long a, long long b) {
    return (a > b) - (a < b);
}

/* By tag, then as the points of each job were logged: sessions, then lines. */
static int as_logged(const void *a, const void *b) {
    const Point *x = a, *y = b;
    int order = compare(x->tag, y->tag);
    order = order != 0 ? order : strcmp(x->job, y->job);
    order = order != 0 ? order : rank(x->session, y->session);
    return order != 0 ? order : x->row < y->row ? -1 : 1;
}

/* By tag and step; then main's points, those of side jobs by job, those of outcomes by hand-over: the last counts. */
static int as_counted(const void *a, const void *b) {
    const Point *x = a, *y = b;
    int order = compare(x->tag, y->tag);
    order = order != 0 ? order : rank(x->step, y->step);
    order = order != 0 ? order : rank(is_main(x) ? 0 : 1 + x->outcome, is_main(y) ? 0 : 1 + y->outcome);
    if (order == 0 && x->outcome) {
        order = rank(x->group, y->group);
        order = order != 0 ? order : rank(x->order, y->order);
        order = order != 0 ? order : rank(x->attempt, y->attempt);
    } else if (order == 0) {
        order = strcmp(x->job, y->job);
        order = order != 0 ? order : rank(x->session, y->session);
    }
    return order != 0 ? order : x->row < y->row ? -1 : 1;
}

static int by_history(const void *a, const void *b) {
    const Point *x = *(Point *const *)a, *y = *(Point *const *)b;
    int order = rank(x->group, y->group);
    order = order != 0 ? order : rank(x->step, y->step);
    return order != 0 ? order : rank(x->out, y->out);
}

static int by_outcome(const void *a, const void *b) {
    const Point *x = *(Point *const *)a, *y = *(Point *const *)b;
    int order = compare(x->tag, y->tag);
    order = order != 0 ? order : strcmp(x->key, y->key);
    return order != 0 ? order : x->row < y->row ? -1 : 1;
}

/* Of the lines of one outcome the last value of each tag counts. */
static void keep_last_of_outcomes(Point **chosen) {
    size_t count = 0;
    for (size_t i = 0; i < point_count; i++)
        if (points[i].outcome)
            chosen[count++] = &points[i];
    if (count > 0)
        qsort(chosen, count, sizeof *chosen, by_outcome);
    for (size_t i = 0; i + 1 < count; i++)
        if (compare(chosen[i]->tag, chosen[i + 1]->tag) == 0 && strcmp(chosen[i]->key, chosen[i + 1]->key) == 0)
            chosen[i]->out = true;
}

/* A main session voids the points of older ones, tag by tag, from its own first step of the tag on. `points` stand as
 * they were logged: going backwards, the sessions of a tag come newest first. */
static void void_by_resumed_mains(void) {
    long long lowest = LLONG_MAX, group_lowest = LLONG_MAX, group = -1;
    bool later = false; /* whether there are points of a newer group */
    for (size_t i = point_count; i-- > 0;) {
        Point *point = &points[i];
        bool new_tag = i + 1 == point_count || compare(point->tag, points[i + 1].tag) != 0;
        if (new_tag) {
            lowest = group_lowest = LLONG_MAX;
            group = -1;
            later = false;
        }
        if (!is_main(point))
            continue;
        if (point->group != group) {
            later = group >= 0;
            lowest = group_lowest < lowest ? group_lowest : lowest;
            group_lowest = LLONG_MAX;
            group = point->group;
        }
        group_lowest = point->step < group_lowest ? point->step : group_lowest;
        point->out = later && point->step >= lowest;
    }
}

/* An outcome shares the fate of what its main session had logged last by then. */
static void void_outcomes(Point **history) {
    size_t count = 0;
    for (size_t i = 0; i < point_count; i++)
        if (is_main(&points[i]))
            history[count++] = &points[i];
    if (count > 0)
        qsort(history, count, sizeof *history, by_history);
    for (size_t i = 0; i < point_count; i++) {
        Point *point = &points[i];
        size_t low = 0, high = count;
        while (point->outcome && low < high) { /* the last one that is not above the outcome's step */
            size_t middle = low + (high - low) / 2;
            bool before = history[middle]->group < point->group ||
                          (history[middle]->group == point->group && history[middle]->step <= point->step);
            low = before ? middle + 1 : low;
            high = before ? high : middle;
        }
        /* Of equal steps the void ones stand last. */
        if (point->outcome && point->group >= 0 && low > 0 && history[low - 1]->group == point->group)
            point->out = point->out || history[low - 1]->out;
    }
}

/* Whether two points are settled among each other before others: those of a job, and those of outcomes. */
static bool is_one_series(const Point *a, const Point *b) {
    return a->outcome == b->outcome && (a->outcome || strcmp(a->job, b->job) == 0);
}

/* Writes the points of one tag that count, of those sorted by step. */
static void add_series(Buffer *out, const Point *from, size_t size) {
    bool beside = false, any = false;
    long long first = 0; /* from here on the values beside main's replace those */
    for (size_t i = 0; i < size && !beside; i++)
        if (!is_main(&from[i]) && !from[i].out) {
            beside = true;
            first = from[i].step;
        }
    for (size_t i = 0; i < size;) {
        const Point *winner = NULL, *at = &from[i];
        while (i < size && from[i].step == at->step) {
            const Point *last = NULL, *of = &from[i];
            for (; i < size && from[i].step == at->step && is_one_series(&from[i], of); i++)
                if (!from[i].out && !(is_main(&from[i]) && beside && at->step >= first))
                    last = &from[i];
            if (last != NULL && (winner == NULL || last->time >= winner->time))
                winner = last;
        }
        if (winner == NULL)
            continue;
        if (!any) {
            add(out, out->size > 0 ? "," : "");
            add_text(out, winner->tag);
        }
        add(out, "%s[%lld,", any ? "," : ":[", winner->step);
        add_bytes(out, winner->value.at, winner->value.size);
        add(out, "]");
        any = true;
    }
    if (any)
        add(out, "]");
}

static Bytes counted_points(void) {
    Buffer out = {0};
    Point **chosen = take_room(&scratch, (point_count + 1) * sizeof *chosen);
    if (point_count > 0)
        qsort(points, point_count, sizeof *points, as_logged);
    for (size_t i = 0; i < point_count; i++)
        points[i].row = i;
    keep_last_of_outcomes(chosen);
    void_by_resumed_mains();
    void_outcomes(chosen);
    if (point_count > 0)
        qsort(points, point_count, sizeof *points, as_counted);
    for (size_t i = 0, end; i < point_count; i = end) {
        for (end = i + 1; end < point_count && compare(points[end].tag, points[i].tag) == 0; end++)
            continue;
        add_series(&out, &points[i], end - i);
    }
    return content(&out);
}

typedef struct {
    const char *entry, *place;
    int rank; /* the highest one counts where an entry stands in two places */
} Seen;

static int by_entry(const void *a, const void *b) {
    const Seen *x = a, *y = b;
    int order = strcmp(x->entry, y->entry);
    return order != 0 ? order : rank(x->rank, y->rank);
}

typedef struct {
    Seen *at;
    size_t size, room;
} All;

static void see(All *all, const char *entry, const char *place, int rank) {
    if (!is_entry(entry))
        return;
    all->at = grow(all->at, all->size, &all->room, sizeof *all->at);
    all->at[all->size++] = (Seen){entry, place, rank};
}

static void see_folder(All *all, const char *folder, const char *place, int rank) {
    Names names = names_in(folder);
    for (size_t i = 0; i < names.size; i++)
        see(all, names.at[i], place, rank);
}

/* What stands where. An entry that moves may be missed by one look: then a second one, of a lower rank, counts (9). */
static void see_places(All *all, int rank_of_look) {
    Names metas = names_in(text("%s/meta", unit)), retry = names_in(text("%s/retry", unit));
        for (size_t i = 0; i < metas.size; i++)
            if (ends_with(metas.at[i], ".json"))
                see(all, without(metas.at[i], 5), NULL, 0);
        see_folder(all, text("%s/queue", unit), "queue", rank_of_look + 3);
        long long attempt;
        for (size_t i = 0; i < retry.size; i++)
            if (read_number(retry.at[i], strlen(retry.at[i]), &attempt) && attempt > 0)
                see_folder(all, text("%s/retry/%s", unit, retry.at[i]), "retry", rank_of_look + 4);
        Claims claims = list_claims();
        for (size_t i = 0; i < claims.size; i++)
            see(all, claims.at[i].entry, "claimed", rank_of_look + 5);
        see_folder(all, text("%s/failed", unit), "failed", rank_of_look + 2);
    see_folder(all, text("%s/best", run), "best", rank_of_look + 1);
}

static Bytes all_entries(All all) {
    Buffer out = {0};
    if (unit == NULL)
        return bytes("null"); /* unreachable is never empty (2) */
    see_places(&all, 0);
    for (size_t i = 0; i < outcome_count; i++)
        see(&all, outcomes[i].entry, NULL, 0);
    if (all.size > 0)
        qsort(all.at, all.size, sizeof *all.at, by_entry);
    for (size_t i = 0; i < all.size; i++) {
        const Seen *seen = &all.at[i];
        if (i + 1 < all.size && strcmp(seen->entry, all.at[i + 1].entry) == 0)
            continue;
        add(&out, out.size > 0 ? "," : "");
        add_text(&out, bytes(seen->entry));
        add(&out, ":{\"place\":");
        add(&out, seen->place != NULL ? "\"%s\"" : "null", seen->place);
        add(&out, ",\"outcomes\":{");
        bool any = false;
        for (size_t j = 0; j < outcome_count; j++)
            if (outcomes[j].record != NULL && strcmp(outcomes[j].entry, seen->entry) == 0) {
                add(&out, "%s\"%lld\":\"%s\"", any ? "," : "", outcomes[j].attempt, state_names[outcomes[j].state]);
                any = true;
            }
        add(&out, "}}");
    }
    return bytes(text("{%s}", content(&out).at));
}

/* One look; false: a session was opened meanwhile, whose fence may void what was read (8.4). */
static bool read_run(Buffer *out) {
    Names logs;
    if (!list(run, &logs))
        fail_at(run);
    Jobs jobs = jobs_now(), again;
    Buffer all_jobs = {0}, skipped = {0};
    bool writable = true;
    for (size_t i = 0; i < jobs.size; i++) {
        JobFile file = jobs.at[i];
        const Json *lock = file.kind == LOCK ? peek_lock(file.job, file.session) : NULL;
        writable = writable && (lock == NULL || refusal(lock) == NULL);
        if (file.kind != LOCK || highest(&jobs, file.job) != file.session)
            continue;
        const char *reason, *status = status_of(&jobs, file.job, file.session, &reason);
        add(&all_jobs, "%s\"%s\":{\"session\":%lld", all_jobs.size > 0 ? "," : "", file.job, file.session);
        add_pair(&all_jobs, "status", status);
        add_pair(&all_jobs, "reason", reason);
        add(&all_jobs, "}");
    }
    point_count = outcome_count = 0;
    logs = names_in(text("%s/scalars", run));
    Source *sources = take_room(&scratch, (logs.size + 1) * sizeof *sources);
    size_t count = 0;
    for (size_t i = 0; i < logs.size; i++)
        count += is_source(logs.at[i], &sources[count]);
    if (count > 0)
        qsort(sources, count, sizeof *sources, by_reading);
    for (size_t i = 0; i < count; i++)
        read_log(&jobs, &sources[i], &skipped);
    All places = {NULL, 0, 0};
    unit = find_unit(main_lock(&jobs));
    if (unit != NULL)
        see_places(&places, 5);
    read_outcomes(&jobs); /* after the logs, since an outcome stands before its line is logged (8.4) */
    add_outcome_points();
    add(out, "{\"writable\":%s,\"jobs\":{", writable ? "true" : "false");
    const Bytes parts[] = {content(&all_jobs), bytes("},\"points\":{"), counted_points(), bytes("},\"skipped\":{"),
                           content(&skipped), bytes("},\"entries\":"), all_entries(places)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add_bytes(out, parts[i].at, parts[i].size);
    add(out, ",\"finished\":%s}\n", unit == NULL ? "null" : is_finished(&jobs) ? "true" : "false");
    again = jobs_now();
    for (size_t i = 0; i < again.size; i++)
        if (again.at[i].kind == LOCK && !stands(&jobs, LOCK, again.at[i].job, again.at[i].session))
            return false;
    return true;
}

/* ---- The commands (docs/clients.md) ---- */

typedef struct {
    char **at;
    size_t size;
} Fields;

static void answer(const char *format, ...) LIKE_PRINTF(1, 2);
static void answer(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    putchar('\n');
    fflush(stdout);
}

static long long whole_field(const char *field) {
    long long whole;
    if (!as_whole(parse(bytes(field)), &whole))
        fail("%s is no whole number", field);
    return whole;
}

/* Where the run folder stands, with a slash at its end; paths are relative to it, so that they stay short. */
static const char *parent;

/* False: there is no such folder, and none is to be made. */
static bool enter_parent(bool make) {
    if (make && chdir(parent) != 0 && is_absent(errno))
        make_folders("", without(parent + 1, 1));
    if (chdir(parent) == 0)
        return true;
    if (!is_absent(errno))
        fail_at(parent);
    return false;
}

/* Why nothing may be written to the run (10), or NULL. */
static const char *find_refusal(const Jobs *jobs) {
    for (size_t i = 0; i < jobs->size; i++) {
        const Json *lock = jobs->at[i].kind == LOCK ? peek_lock(jobs->at[i].job, jobs->at[i].session) : NULL;
        if (lock != NULL && refusal(lock) != NULL)
            return text("%s: %s", jobs->at[i].name, refusal(lock));
    }
    return NULL;
}

/* Makes the folders of a new run, and those of its unit that are missing; finds the unit where it stands elsewhere. */
static void enter_run(const Jobs *jobs, bool is_main_job) {
    static const char *const of_run[] = {"jobs", "scalars", "evals", "files"};
    static const char *const of_unit[] = {"queue", "meta", "claimed", "retry", "failed", "trash", "best"};
    for (size_t i = 0; i < 4 && is_main_job && highest(jobs, "main") == 0; i++) /* never again after that (4.1) */
        make_folders(".", text("%s/%s", run, of_run[i]));
    const char *found = find_unit(main_lock(jobs));
    if (found == NULL)
        fail("the hand-over unit cannot be reached");
    unit = found == run ? run : keep(found);
    for (size_t i = 0; i < 7 && is_main_job && unit == run; i++)
        make_folders(run, of_unit[i]);
}

/* What a restart does not say again stays as it was: the keys of main's last lock, as they are written. */
static const char *carry(const Json *last, bool is_main_job) {
    static const char *const keys[] = {"project", "run", "name", "config", "unit"};
    Buffer carried = {0};
    for (size_t i = 0; i < 5; i++) {
        const Json *value = i < 2 || is_main_job ? get(last, keys[i]) : NULL;
        add(&carried, ",\"%s\":", keys[i]);
        if (value != NULL)
            add_bytes(&carried, value->raw.at, value->raw.size);
        else if (i < 2 && last == NULL)
            add_text(&carried, bytes(i == 1 ? run : last_part(without(parent, 1))));
        else
            add(&carried, i == 3 ? "{}" : "null");
    }
    return keep(content(&carried).at);
}

/* Opens the next session once its predecessor is closed, which is watched until then (4.4); false: that one lives. */
static bool succeed(Watch *watch) {
    for (;;) {
        Jobs jobs;
        Verdict verdict;
        double started = now();
        if (!list_jobs(&jobs))
            fail_at(jobs_folder());
        double ended = now(), pause = 0.02;
        long long predecessor = highest(&jobs, me.job);
        if (predecessor == 0 || is_closed(&jobs, me.job, predecessor)) {
            me.session = predecessor + 1;
            if (predecessor > 0)
                read_lock(me.job, predecessor); /* unless it refuses */
            int ours = open_session(me.session, predecessor > 0 ? fence_over(predecessor) : bytes("null"), false);
            if (ours < 0)
                fail_at(jobs_folder());
            if (ours == 1)
                return true;
        } else {
            know(watch, me.job, predecessor);
            if (close_if_over(watch, started, ended, &jobs, &verdict))
                continue;
            if (verdict == ALIVE)
                return false;
            pause = watch->timeout / 30 > 1 ? 1 : watch->timeout / 30 > pause ? watch->timeout / 30 : pause;
        }
        nap(pause);
    }
}

static void command_open(const Fields *fields) {
    const char *job = fields->at[1], *why;
    const Json *seconds = parse(bytes(fields->at[2]));
    bool is_main_job = strcmp(job, "main") == 0;
    if (me.state != NOTHING)
        fail("a session was opened before");
    if (!is_job(job, strlen(job)))
        fail("%s is no name of a job", job);
    if (seconds == NULL || !as_value(seconds, &me.timeout) || !(me.timeout >= 0.2 && me.timeout <= 86400))
        fail("%s is no time of 0.2 to 86400 seconds", fields->at[2]);
    me.timeout_text = keep(fields->at[2]);
    copy_text(me.job, sizeof me.job, job);
    bool there = enter_parent(is_main_job);
    Jobs jobs = there ? jobs_now() : (Jobs){NULL, 0};
    if ((why = find_refusal(&jobs)) != NULL || (!is_main_job && highest(&jobs, "main") == 0)) {
        answer("refused\t%s", why != NULL ? why : "main was not opened yet");
        return;
    }
    enter_run(&jobs, is_main_job);
    me.carried = carry(main_lock(&jobs), is_main_job);
    Watch watch = {.session = 0};
    if (!succeed(&watch)) {
        answer("held\t%s\t%lld", watch.host[0] != '\0' ? watch.host : "unknown", watch.pid);
        return;
    }
    sweep(job);
    Names queue = names_in(text("%s/queue", unit));
    if (is_main_job && has(&queue, "FINISHED")) { /* a new main process hands over again (5.8) */
        protect();
        discard(unit, "queue/FINISHED");
    }
    write_view("running", NULL);
    answer("opened\t%lld", me.session);
}

static void command_beat(const Fields *fields) {
    (void)fields;
    long long before = me.session;
    beat();
    if (me.state == FENCED)
        leave();
    if (me.state != OPEN || (me.session == before && me.doubt > 0))
        fail("%s: no beat is possible", run);
    answer("beaten\t%lld", me.count);
}

static bool is_tag(const char *tag) {
    return is_clean(tag, MAX_TAG) && strcmp(tag, "step") != 0 && strcmp(tag, "time") != 0 && strcmp(tag, "entry") != 0;
}

/* `"TAG":VALUE` for each pair from a field on, with a comma before each but the first. */
static void add_scores(Buffer *out, const Fields *fields, size_t from) {
    if ((fields->size - from) % 2 != 0)
        fail("a tag has no value");
    for (size_t i = from; i < fields->size; i += 2) {
        const char *tag = fields->at[i], *value = fields->at[i + 1];
        const Json *number = parse(bytes(value));
        double real;
        if (!is_tag(tag))
            fail("%s is no tag", tag);
        if (number == NULL) /* a word stands without quotes here */
            number = parse(bytes(text("\"%s\"", value)));
        if (value[0] == '"' || !as_value(number, &real))
            fail("%s is no number", value);
        add(out, i > from ? "," : "");
        add_text(out, bytes(tag));
        add(out, ":");
        add_value(out, number, real);
    }
}

static void command_log(const Fields *fields) {
    static double last;
    long long step = whole_field(fields->at[1]);
    const Json *time = parse(bytes(fields->at[2]));
    Buffer line = {0};
    if (time == NULL || time->kind != J_NUMBER)
        fail("%s is no time", fields->at[2]);
    add(&line, "{\"step\":%lld,\"time\":%s,", step, fields->at[2]);
    add_scores(&line, fields, 3);
    add(&line, "}\n");
    if (!log_line(content(&line)))
        fail_at(log_path());
    me.last_step = step;
    me.has_step = true;
    if (strcmp(me.job, "main") != 0 && now() - last >= 0.1) /* a plain loop removes the entry after it (5.10) */
        sync_log();
    last = now();
    answer("logged");
}

static void need_main(void) {
    if (strcmp(me.job, "main") != 0)
        fail("only main hands over");
}

static void command_enqueue(const Fields *fields) {
    need_main();
    if (!is_entry(fields->at[2]))
        fail("%s is no name of an entry", fields->at[2]);
    answer("enqueued\t%s", enqueue(fields->at[1], fields->at[2], whole_field(fields->at[3])));
}

static void command_finish(const Fields *fields) {
    (void)fields;
    need_main();
    write_finished();
    me.finished = me.session;
    answer("finished");
}

static void command_best(const Fields *fields) {
    const char *mode = fields->at[1], *tag = fields->at[2];
    long long kept_entries = whole_field(fields->at[3]);
    if ((strcmp(mode, "max") != 0 && strcmp(mode, "min") != 0) || !is_tag(tag) || kept_entries < 0)
        fail("this is no rule");
    if (!find_rule().there) {
        Buffer record = {0};
        add(&record, "{\"protocol\":\"" PROTOCOL "\",\"mode\":\"%s\"", mode);
        add_pair(&record, "tag", tag);
        add(&record, ",\"keep\":%lld}\n", kept_entries);
        must_put(text("%s/best.json", run), content(&record));
    }
    Rule rule = find_rule();
    if (rule.max == (strcmp(mode, "max") == 0) && compare(rule.tag, bytes(tag)) == 0 && rule.keep == kept_entries)
        answer("ruled");
    else
        answer("refused\tthe run keeps the %lld best by %s:%s", rule.keep, rule.max ? "max" : "min", rule.tag.at);
}

/* Claims what is next and is as it was handed over; false: nothing is left of this look. */
static bool take(void) {
    size_t count;
    Waiting *waiting = list_waiting(&count);
    for (size_t i = 0; i < count; i++) {
        Claim claim;
        if (!claim_entry(&waiting[i], &claim))
            continue;
        const Json *handed_over = read_meta(claim.entry);
        const char *changed = handed_over != NULL ? difference(claim_path(&claim), handed_over) : NULL;
        if (changed != NULL) {
            fprintf(stderr, "fsrun-c: %s is not what was handed over: %s\n", claim.entry, changed);
            bring_home(claim, FAILED_ATTEMPT, "changed");
            continue;
        }
        Facts facts = facts_of(claim.entry);
        Jobs jobs = jobs_now();
        facts.has_step = facts.has_step || last_step(&jobs, &facts.step);
        if (handed_over == NULL) { /* the claimant alone knows (5.9) */
            facts.main_session = highest(&jobs, "main");
            facts.has_main = facts.main_session > 0;
        }
        if (!facts.has_order)
            facts.order = wall_ns();
        facts.has_order = true;
        claim.job = me.job;
        claim.entry = keep(claim.entry);
        held.claim = claim;
        held.facts = facts;
        held.started = keep(rfc3339(wall_ns()));
        held.since = now();
        held.place = NULL;
        held.there = true;
        return true;
    }
    return false;
}

static void command_take(const Fields *fields) {
    (void)fields;
    bool others, coming;
    if (held.there)
        fail("%s is claimed and has no outcome yet", held.claim.entry);
    if (!is_evaluator) {
        is_evaluator = true;
        empty_trash(unit);
        empty_trash(run);
        prune();
    }
    bool over = true;
    for (int looks = 0; looks < 2 && over; looks++) { /* an entry on its way to retry/ is missed by one look, not by two */
        recover(&others, &coming);
        if (take()) {
            const char *path = claim_path(&held.claim);
            answer("taken\t%s\t%lld\t%s%s", held.claim.entry, held.claim.attempt, path[0] == '/' ? "" : parent, path);
            return;
        }
        size_t waiting;
        list_waiting(&waiting);
        over = waiting == 0 && may_end(others, coming);
    }
    answer(over ? "over" : "none");
}

static void command_outcome(const Fields *fields) {
    const char *word = fields->at[1];
    Outcome outcome = {.state = DONE, .facts = held.facts, .started = held.started, .lag = -1};
    Buffer scores = {0};
    if (!held.there)
        fail("nothing is claimed");
    while (outcome.state < STATES && (outcome.state == LOST || strcmp(word, state_names[outcome.state]) != 0))
        outcome.state++;
    if (outcome.state == STATES || ((outcome.state == FAILED_ATTEMPT || outcome.state == SKIPPED) && fields->size != 3))
        fail("%s is no outcome", word);
    if (outcome.state == DONE)
        add_scores(&scores, fields, 2);
    else
        outcome.reason = fields->size > 2 ? fields->at[2] : NULL;
    if (held.place != NULL) { /* taken for dead meanwhile: another outcome stands */
        held.there = false;
        answer("moved\t%s", held.place);
        return;
    }
    Claim claim = held.claim;
    const Json *handed_over = outcome.state == DONE ? read_meta(claim.entry) : NULL;
    const char *changed = handed_over != NULL ? difference(claim_path(&claim), handed_over) : NULL;
    if (changed != NULL && is_present(claim_path(&claim))) { /* again before the outcome `done` (5.1) */
        fprintf(stderr, "fsrun-c: %s is not what was handed over: %s\n", claim.entry, changed);
        outcome.state = FAILED_ATTEMPT;
        outcome.reason = "changed";
    }
    Jobs jobs = jobs_now();
    long long step;
    if (outcome.facts.has_step && last_step(&jobs, &step))
        outcome.lag = step > outcome.facts.step ? step - outcome.facts.step : 0;
    if (outcome.state == DONE)
        outcome.scores = bytes(text("{%s}", content(&scores).at));
    outcome.duration = now() - held.since;
    outcome.time = (double)wall_ns() / 1e9;
    Standing standing;
    bool settled = settle(&claim, &outcome, &standing);
    held.there = false;
    if (!settled)
        fail("%s was taken away", claim.entry);
    const char *place = move_claim(&claim, standing.state);
    if (standing.state == DONE && outcome.state == DONE) {
        if (outcome.facts.has_step && scores.size > 0) { /* a copy for people and fast readers (5.9) */
            Buffer line = {0};
            add(&line, "{\"step\":%lld,\"time\":%.6f,", outcome.facts.step, outcome.time);
            add_bytes(&line, scores.at, scores.size);
            add_pair(&line, "entry", text("%s.%lld", claim.entry, claim.attempt));
            add(&line, "}\n");
            if (!log_line(content(&line)) || !sync_log())
                fprintf(stderr, "fsrun-c: %s: %s\n", log_path(), strerror(errno));
        }
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
            if (is_own(claims.at[i].job, claims.at[i].session))
                bring_home(claims.at[i], RETURNED, "the evaluator ended");
        prune();
        empty_trash(unit);
        clear_claims(me.job, me.session);
    }
    for (double began = now(); now() - began < GIVE_UP; nap(me.timeout / 30)) {
        sync_log();
        look_at_session(now());
        if (me.state == FENCED)
            leave();
        if (me.state == GONE && now() - began > me.timeout / 6)
            break; /* a mount may come back, a run that was moved does not */
        if (me.state != OPEN)
            continue;
        write_view(status, reason);
        me.ending = true; /* whoever sees the end may open the next session before this call has returned */
        if (put_end(me.job, me.session, me.token, status, reason) == 1) {
            me.state = CLOSED;
            sweep(me.job);
            return;
        }
    }
    fail("%s: the end cannot be put", run);
}

static void command_close(const Fields *fields) {
    const char *status = fields->at[1];
    if (strcmp(status, "finished") != 0 && strcmp(status, "failed") != 0)
        fail("%s is no status", status);
    close_own(status, fields->size > 2 ? fields->at[2] : NULL);
    answer("closed");
}

static const struct {
    const char *name;
    size_t least, most;
    void (*obey)(const Fields *fields);
} commands[] = {
    {"open", 3, 3, command_open},       {"beat", 1, 1, command_beat},       {"log", 3, SIZE_MAX, command_log},
    {"enqueue", 4, 4, command_enqueue}, {"finish", 1, 1, command_finish},   {"best", 4, 4, command_best},
    {"take", 1, 1, command_take},       {"outcome", 2, SIZE_MAX, command_outcome}, {"close", 2, 3, command_close},
};

static void obey(char *line) {
    Fields fields = {take_room(&scratch, (strlen(line) + 2) * sizeof *fields.at), 0};
    for (char *at = line; at != NULL;) {
        fields.at[fields.size++] = at;
        at = strchr(at, '\t');
        if (at != NULL)
            *at++ = '\0';
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, fields.at[0]) != 0)
            continue;
        if (fields.size < commands[i].least || fields.size > commands[i].most)
            fail("%s has other fields", fields.at[0]);
        if (i > 0 && (me.state == NOTHING || me.state == CLOSED))
            fail("no session is open");
        if (i > 0) { /* nothing is written by a session that was closed by somebody else */
            keep_alive();
            look_at_session(now());
            if (me.state == FENCED)
                leave();
            if (me.state == GONE)
                fail("the run folder is not there any more");
            catch_up();
        }
        commands[i].obey(&fields);
        return;
    }
    fail("no such command: %s", fields.at[0]);
}

static char *input;

/* The next line of standard input, NULL at its end; beats while it waits. */
static char *next_line(void) {
    static size_t size, room, used;
    size -= used;
    if (used > 0)
        memmove(input, input + used, size);
    used = 0;
    for (;;) {
        char *end = size > 0 ? memchr(input, '\n', size) : NULL;
        if (end != NULL) {
            *end = '\0';
            used = (size_t)(end - input) + 1;
            return input;
        }
        if (room - size < 4096) {
            room = 2 * room + 8192;
            char *more = realloc(input, room);
            if (more == NULL)
                return NULL;
            input = more;
        }
        struct pollfd standard_input = {STDIN_FILENO, POLLIN, 0};
        double pause = me.state == OPEN || me.state == GONE ? me.due - now() : 3600;
        if (is_evaluator && watch_pause() < pause)
            pause = watch_pause();
        if (pending.size > 0 && pause > 1)
            pause = 1;
        int ready = poll(&standard_input, 1, pause > 0 ? (int)(pause * 1000) + 1 : 0);
        if (ready > 0) {
            ssize_t count = read(STDIN_FILENO, input + size, room - size);
            if (count == 0 || (count < 0 && errno != EINTR))
                return NULL;
            size += count > 0 ? (size_t)count : 0;
        }
        tend();
    }
}

static int print_run(void) {
    Buffer out = {0};
    if (setjmp(back) != 0) {
        fprintf(stderr, "fsrun-c: %s\n", problem);
        return 1;
    }
    if (!enter_parent(false))
        fail("%s: there is no such run", parent);
    for (int looks = 0; looks < 8 && (out.size = 0, !read_run(&out)); looks++)
        continue;
    return fwrite(out.at, 1, out.size, stdout) == out.size && fflush(stdout) == 0 ? 0 : 1;
}

static int drive(void) {
    char *line;
    know_self();
    while (me.state != CLOSED && (line = next_line()) != NULL) {
        bool closing = strncmp(line, "close", 5) == 0;
        int left = setjmp(back);
        if (left == 0) {
            obey(line);
        } else if (left == LEFT) {
            answer("fenced");
            if (closing)
                break;
        } else {
            for (char *at = problem; *at != '\0'; at++)
                *at = *at == '\t' || *at == '\n' ? ' ' : *at;
            answer("error\t%s", problem);
        }
        clear(&scratch);
    }
    if ((me.state == OPEN || me.state == GONE) && setjmp(back) == 0)
        close_own("failed", "input ended");
    return 0;
}

int main(int count, char **arguments) {
    if (count != 3 || (strcmp(arguments[1], "read") != 0 && strcmp(arguments[1], "drive") != 0) || arguments[2][0] != '/') {
        fputs("usage: fsrun-c read|drive RUN (an absolute path)\n", stderr);
        return 2;
    }
    size_t size = strlen(arguments[2]);
    while (size > 1 && arguments[2][size - 1] == '/')
        arguments[2][--size] = '\0';
    run = last_part(arguments[2]);
    parent = keep(without(arguments[2], strlen(run)));
    home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    int status = strcmp(arguments[1], "drive") == 0 ? drive() : print_run();
    clear(&scratch);
    clear(&lasting);
    free(pending.at);
    free(points);
    free(watches);
    free(input);
    return status;
}
