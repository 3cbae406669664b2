/* Regular expressions: PCRE2 for those that were written for Oniguruma. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "data/tokenizer.h"
#include "fsdp/memory.h"

const char fsdp_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+";

struct fsdp_pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    char *path;
};

/* Enough for a run of so many blanks that a pattern goes back over, and few
 * enough that one made to do harm ends. */
enum { MATCH_LIMIT = 50000000, HEAP_LIMIT = 1 << 18, MAX_PATTERN = 1 << 16 };

/* ---- from one language to the other --------------------------------------- */

/* Unicode's White_Space; PCRE2's \s has U+180E besides. */
static const char space[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}"
                            "\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
                            "\\x{205f}\\x{3000}";

/* A pattern being written anew. */
typedef struct rewriter {
    char *out;
    size_t length;
    bool in_class;
    const char *strange; /* what the two read differently; NULL: nothing */
} rewriter_t;

static void
put(rewriter_t *w, const char *text, size_t length)
{
    memcpy(w->out + w->length, text, length);
    w->length += length;
    w->out[w->length] = '\0';
}

/* At a backslash: how many bytes of the pattern are done. */
static size_t
rewrite_escape(rewriter_t *w, const char *at)
{
    char letter = at[1];
    if (letter == 's' || (letter == 'S' && !w->in_class)) {
        if (!w->in_class)
            put(w, letter == 's' ? "[" : "[^", letter == 's' ? 1 : 2);
        put(w, space, sizeof space - 1);
        if (!w->in_class)
            put(w, "]", 1);
        return 2;
    }
    bool letter_or_digit = (letter >= '0' && letter <= '9') ||
                           (letter >= 'a' && letter <= 'z') ||
                           (letter >= 'A' && letter <= 'Z');
    if (letter == '\0' ||
        (letter_or_digit && strchr("pPrntdx", letter) == NULL))
        w->strange = at;
    put(w, at, letter == '\0' ? 1 : 2);
    return letter == '\0' ? 1 : 2;
}

/* Lines' ends, sets within sets and + behind {n} have other meanings there. */
static bool
is_strange(const rewriter_t *w, const char *begin, const char *at)
{
    if (w->in_class)
        return *at == '[' || (at[0] == '&' && at[1] == '&');
    if (*at == '^' || *at == '$' || *at == '#')
        return true;
    return *at == '+' && at > begin && at[-1] == '}' &&
           memchr("0123456789,", at > begin + 1 ? at[-2] : ' ', 11) != NULL;
}

static void
rewrite(rewriter_t *w, const char *pattern)
{
    const char *at = pattern;
    while (*at != '\0' && w->strange == NULL) {
        if (*at == '\\') {
            at += rewrite_escape(w, at);
            continue;
        }
        if (is_strange(w, pattern, at))
            w->strange = at;
        size_t n = 1;
        if (!w->in_class && *at == '[') {
            w->in_class = true;
            n += at[1] == '^'; /* and a ] that comes first */
            n += at[n] == ']';
        } else if (*at == ']') {
            w->in_class = false;
        }
        put(w, at, n);
        at += n;
    }
}

/* ---- compiling ------------------------------------------------------------- */

static fsdp_status_t
refuse(const char *path, const char *text, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: its pattern \"%.80s\" %s; this tokenizer cannot be "
                      "used here",
                      path, text, what);
}

static fsdp_status_t
compile(fsdp_pattern_t *p, const char *text, const char *rewritten,
        uint32_t options)
{
    int error;
    uint32_t empty = 0;
    PCRE2_SIZE at;
    p->code = pcre2_compile((PCRE2_SPTR)rewritten, PCRE2_ZERO_TERMINATED,
                            options, &error, &at, NULL);
    if (p->code == NULL) {
        PCRE2_UCHAR why[120];
        pcre2_get_error_message(error, why, sizeof why);
        return refuse(p->path, text, (const char *)why);
    }
    pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty != 0)
        return refuse(p->path, text, "matches nothing at all");
    p->match = pcre2_match_data_create(1, NULL);
    p->context = pcre2_match_context_create(NULL);
    FSDP_CHECK(p->match != NULL && p->context != NULL,
               "no memory for a pattern");
    pcre2_set_match_limit(p->context, MATCH_LIMIT);
    pcre2_set_heap_limit(p->context, HEAP_LIMIT);
    return FSDP_OK;
}

fsdp_status_t
fsdp_pattern_create(const char *path, const char *text, bool literal,
                    fsdp_pattern_t **pattern)
{
    fsdp_pattern_t *p = fsdp_calloc(FSDP_MEM_OTHER, sizeof *p);
    size_t length = strlen(text);
    fsdp_status_t status = FSDP_OK;
    *pattern = p;
    p->path = fsdp_strdup(path);
    if (length == 0 || length > MAX_PATTERN)
        return refuse(path, text, "is empty or too long");
    if (literal)
        return compile(p, text, text, PCRE2_LITERAL | PCRE2_UTF);
    size_t room = length * (sizeof space + 3) + 1;
    rewriter_t w = {.out = fsdp_calloc(FSDP_MEM_OTHER, room)};
    rewrite(&w, text);
    if (w.strange != NULL) {
        char *what = fsdp_format("has \"%.2s\"", w.strange);
        status = refuse(path, text, what);
        fsdp_free(what);
    } else {
        status = compile(p, text, w.out, PCRE2_UTF | PCRE2_UCP);
    }
    fsdp_free(w.out);
    return status;
}

void
fsdp_pattern_destroy(fsdp_pattern_t **pattern)
{
    fsdp_pattern_t *p = *pattern;
    if (p == NULL)
        return;
    pcre2_match_context_free(p->context);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    fsdp_free(p->path);
    fsdp_free(p);
    *pattern = NULL;
}

fsdp_status_t
fsdp_pattern_next(const fsdp_pattern_t *p, const char *text, size_t length,
                  size_t from, size_t *begin, size_t *end)
{
    int found = pcre2_match(p->code, (PCRE2_SPTR)text, length, from,
                            PCRE2_NO_UTF_CHECK, p->match, p->context);
    *begin = *end = length;
    if (found == PCRE2_ERROR_NOMATCH)
        return FSDP_OK;
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(p->match);
    if (found < 0 || place[1] <= place[0] || place[0] < from)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: its pattern gives up on the text; use another "
                          "tokenizer",
                          p->path);
    *begin = place[0];
    *end = place[1];
    return FSDP_OK;
}
