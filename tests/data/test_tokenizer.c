/* Byte-level BPE: the tokens of texts are those that Hugging Face's package made
 * (data/golden/tokenizer_*.json). */
/* Ranks: 1 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/whole_file.h"
#include "fsdp/memory.h"
#include "fsdp/tokenizer.h"
#include "mck.h"
#include "tokenizer_file.h"

static fsdp_json_t *
read_golden(const char *name)
{
    const char *data = getenv("FSDP_DATA_DIR");
    char *path = fsdp_format("%s/golden/tokenizer_%s.json",
                             data != NULL ? data : "data", name);
    char *text;
    size_t length;
    fsdp_json_t *document;
    ck_assert_msg(fsdp_file_read(path, 1 << 24, &text, &length) == FSDP_OK,
                  "%s", fsdp_error_message());
    ck_assert(fsdp_json_parse(path, text, length, &document) == FSDP_OK);
    /* The tokenizer itself is the first member of the file. */
    static const char begin[] = "{\"tokenizer\":";
    ck_assert(strncmp(text, begin, sizeof begin - 1) == 0);
    char *end = strstr(text, ",\"cases\":");
    ck_assert(end != NULL);
    *end = '\0';
    put_file(text + sizeof begin - 1);
    fsdp_free(text);
    fsdp_free(path);
    return document;
}

/* The bytes of a text in hexadecimal; the caller frees. */
static char *
unhex(const char *hex, size_t *length)
{
    *length = strlen(hex) / 2;
    char *text = fsdp_alloc(FSDP_MEM_OTHER, *length + 1);
    for (size_t i = 0; i < *length; i++) {
        unsigned byte;
        ck_assert(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        text[i] = (char)byte;
    }
    return text;
}

static void
check_ids(const fsdp_tokenizer_t *t, const char *hex, bool special,
          const fsdp_json_t *expected)
{
    size_t length, count;
    int32_t *token;
    char *text = unhex(hex, &length);
    ck_assert(fsdp_tokenizer_encode(t, text, length, special, &token, &count,
                                    NULL) == FSDP_OK);
    ck_assert_msg(count == fsdp_json_size(expected),
                  "text %s: %zu tokens, not %zu", hex, count,
                  fsdp_json_size(expected));
    for (size_t i = 0; i < count; i++) {
        int64_t id = -1;
        fsdp_json_get_integer(fsdp_json_at(expected, i), &id);
        ck_assert_msg(token[i] == id, "text %s: token %zu is %d, not %ld", hex,
                      i, token[i], (long)id);
    }
    fsdp_free(token);
    fsdp_free(text);
}

/* The bytes of the tokens are the text again, where that was UTF-8. */
static void
check_bytes(const fsdp_tokenizer_t *t, const fsdp_json_t *ids, const char *hex)
{
    size_t length, at = 0;
    char *text = unhex(hex, &length);
    for (size_t i = 0; i < fsdp_json_size(ids); i++) {
        int64_t id = -1;
        size_t n;
        fsdp_json_get_integer(fsdp_json_at(ids, i), &id);
        const char *bytes = fsdp_tokenizer_bytes(t, (int32_t)id, &n);
        ck_assert(bytes != NULL && at + n <= length &&
                  memcmp(bytes, text + at, n) == 0);
        at += n;
    }
    ck_assert_uint_eq(at, length);
    fsdp_free(text);
}

static bool
is_utf8(const fsdp_tokenizer_t *t, const char *hex)
{
    size_t length, count, replaced;
    int32_t *token;
    char *text = unhex(hex, &length);
    fsdp_tokenizer_encode(t, text, length, false, &token, &count, &replaced);
    fsdp_free(token);
    fsdp_free(text);
    return replaced == 0;
}

static void
check_golden(const char *name, size_t least)
{
    fsdp_json_t *golden = read_golden(name);
    const fsdp_json_t *cases = fsdp_json_member(golden, "cases");
    fsdp_tokenizer_t *t;
    size_t sound = 0;
    ck_assert_msg(fsdp_tokenizer_open(file_name, &t) == FSDP_OK, "%s",
                  fsdp_error_message());
    ck_assert_uint_gt(fsdp_json_size(cases), least);
    for (size_t i = 0; i < fsdp_json_size(cases); i++) {
        const fsdp_json_t *c = fsdp_json_at(cases, i);
        const fsdp_json_t *ids = fsdp_json_member(c, "ids");
        const char *hex = fsdp_json_get_string(fsdp_json_member(c, "hex"));
        const char *back = fsdp_json_get_string(fsdp_json_member(c, "back"));
        check_ids(t, hex, false, ids);
        check_ids(t, hex, true, fsdp_json_member(c, "special"));
        if (back != NULL || is_utf8(t, hex)) {
            check_bytes(t, ids, back != NULL ? back : hex);
            sound++;
        }
    }
    ck_assert_uint_gt(sound, least / 2);
    fsdp_tokenizer_close(&t);
    fsdp_json_destroy(&golden);
}

START_TEST(as_gpt2)
{
    check_golden("gpt2", 120);
}
END_TEST

START_TEST(as_gpt2_with_a_space_and_added_tokens)
{
    check_golden("spaced", 120);
}
END_TEST

START_TEST(what_is_a_blank)
{
    check_golden("blanks", 240);
}
END_TEST

START_TEST(as_llama_3)
{
    check_golden("llama3", 120);
}
END_TEST

/* A piece of a million bytes takes no quadratic time, and all of it is there. */
START_TEST(a_piece_without_end)
{
    enum { LENGTH = 1000000 };
    fsdp_json_t *golden = read_golden("gpt2");
    fsdp_tokenizer_t *t;
    int32_t *token;
    size_t count, bytes = 0;
    char *text = fsdp_alloc(FSDP_MEM_OTHER, LENGTH);
    ck_assert(fsdp_tokenizer_open(file_name, &t) == FSDP_OK);
    for (int kind = 0; kind < 2; kind++) {
        memset(text, kind == 0 ? 'e' : ' ', LENGTH);
        text[LENGTH - 1] = 'x';
        ck_assert(fsdp_tokenizer_encode(t, text, LENGTH, false, &token, &count,
                                        NULL) == FSDP_OK);
        bytes = 0;
        for (size_t i = 0, n; i < count; i++) {
            fsdp_tokenizer_bytes(t, token[i], &n);
            bytes += n;
        }
        ck_assert_uint_eq(bytes, LENGTH);
        fsdp_free(token);
    }
    fsdp_tokenizer_close(&t);
    fsdp_json_destroy(&golden);
    fsdp_free(text);
}
END_TEST

int
main(int argc, char **argv)
{
    TCase *tc = tcase_create("tokenizer");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, as_gpt2);
    tcase_add_test(tc, as_gpt2_with_a_space_and_added_tokens);
    tcase_add_test(tc, as_llama_3);
    tcase_add_test(tc, what_is_a_blank);
    tcase_add_test(tc, a_piece_without_end);
    Suite *suite = suite_create("tokenizer");
    suite_add_tcase(suite, tc);
    return mck_run(argc, argv, suite);
}
