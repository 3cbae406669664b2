/* Byte-level BPE with a few tokens of our own: what comes out, and what a
 * tokenizer.json may not say. */
/* Ranks: 1 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "fsdp/memory.h"
#include "fsdp/tokenizer.h"
#include "mck.h"
#include "tokenizer_file.h"

/* The 256 letters and "ab"; `merges`, `rest` as told. */
static char *
by_hand(const char *vocab_end, const char *merges, const char *rest)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    int others = 256;
    fsdp_json_open_object(w);
    for (int b = 0; b < 256; b++) {
        bool itself = (b > 32 && b < 127) || (b > 160 && b != 173);
        int point = itself ? b : others++;
        char text[3] = {(char)point, 0, 0};
        if (point > 127) {
            text[0] = (char)(0xc0 | point >> 6);
            text[1] = (char)(0x80 | (point & 63));
        }
        fsdp_json_key(w, text);
        fsdp_json_integer(w, b);
    }
    char *all = fsdp_format(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":%s,%s},\"merges\":%s}%s}",
        fsdp_json_writer_text(w), vocab_end, merges, rest);
    fsdp_json_writer_destroy(&w);
    return all;
}

#define LEVEL                                                                  \
    ",\"pre_tokenizer\":{\"type\":\"ByteLevel\","                              \
    "\"add_prefix_space\":false}"
#define SPLIT(x)                                                               \
    ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"  \
    "\"Split\"," x "},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"     \
    "\"use_regex\":false}]}"
#define REGEX(x)                                                               \
    SPLIT("\"pattern\":{\"Regex\":\"" x "\"},\"behavior\":\"Isolated\"")

START_TEST(the_smallest)
{
    char *text =
        by_hand("\"ab\":256,\"aa\":257", "[\"a b\",[\"a\",\"a\"]]", LEVEL);
    fsdp_tokenizer_t *t;
    int32_t *token;
    size_t count, replaced;
    put_file(text);
    ck_assert_msg(fsdp_tokenizer_open(file_name, &t) == FSDP_OK, "%s",
                  fsdp_error_message());
    ck_assert_uint_eq(fsdp_tokenizer_size(t), 258);
    ck_assert(fsdp_tokenizer_encode(t,
                                    "babaab\0\xff"
                                    "aaa",
                                    11, true, &token, &count,
                                    &replaced) == FSDP_OK);
    static const int32_t expected[] = {'b',  256,  'a',  256, 0,
                                       0xef, 0xbf, 0xbd, 257, 'a'};
    ck_assert_uint_eq(count, 10);
    ck_assert_uint_eq(replaced, 1);
    ck_assert_mem_eq(token, expected, sizeof expected);
    ck_assert(fsdp_tokenizer_bytes(t, 258, &count) == NULL);
    ck_assert(fsdp_tokenizer_bytes(t, -1, &count) == NULL);
    fsdp_free(token);
    fsdp_free(text);
    fsdp_tokenizer_close(&t);
}
END_TEST

/* What is between the matches is a piece too, and nothing is merged across. */
START_TEST(between_matches)
{
    static const char *const split[] = {
        REGEX("b"),
        SPLIT("\"pattern\":{\"String\":\"b\"},\"behavior\":\"Isolated\"")};
    static const int32_t expected[] = {'a', 'b', 'a', 'b', 'c'};
    for (int i = 0; i < 2; i++) {
        char *text = by_hand("\"ab\":256", "[\"a b\"]", split[i]);
        fsdp_tokenizer_t *t;
        int32_t *token;
        size_t count;
        put_file(text);
        ck_assert(fsdp_tokenizer_open(file_name, &t) == FSDP_OK);
        ck_assert(fsdp_tokenizer_encode(t, "ababc", 5, false, &token, &count,
                                        NULL) == FSDP_OK);
        ck_assert_uint_eq(count, 5);
        ck_assert_mem_eq(token, expected, sizeof expected);
        fsdp_free(token);
        fsdp_tokenizer_close(&t);
        fsdp_free(text);
    }
}
END_TEST

static void
refused(const char *text, const char *message)
{
    fsdp_tokenizer_t *t = (fsdp_tokenizer_t *)&t;
    put_file(text);
    fsdp_status_t status = fsdp_tokenizer_open(file_name, &t);
    ck_assert_msg(status == FSDP_ERR_INPUT && t == NULL, "not refused: %.200s",
                  strlen(text) > 200 ? text + strlen(text) - 200 : text);
    ck_assert_msg(strstr(fsdp_error_message(), message) != NULL &&
                      strstr(fsdp_error_message(), file_name) != NULL,
                  "not \"%s\": %s", message, fsdp_error_message());
}

/* A template that puts a token before the text. */
#define BEGINS(id)                                                             \
    ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["        \
    "{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"        \
    "\"special_tokens\":{\"x\":{\"ids\":[" id "]}}}"

/* By the end of the vocabulary, the merges, and what follows the model. */
static const struct {
    const char *vocab, *merges, *rest, *message;
} wrong[] = {
    {"\"ab\":256", "[\"a b\"]", "", "pre_tokenizer"},
    {"\"ab\":255", "[\"a b\"]", LEVEL, "number twice"},
    {"\"ab\":-1", "[\"a b\"]", LEVEL, "model.vocab"},
    {"\"ab\":NaN", "[\"a b\"]", LEVEL, ""},
    {"\"ab\":1.5", "[\"a b\"]", LEVEL, "model.vocab"},
    {"\"ab\":2147483647", "[\"a b\"]", LEVEL, "too large"},
    {"\"ab\":9223372036854775807", "[\"a b\"]", LEVEL, "too large"},
    {"\"ab\":99999999999999999999999", "[\"a b\"]", LEVEL, ""},
    {"\"ab\":256,\"ab\":257", "[\"a b\"]", LEVEL, ""},
    {"\"ab\":256", "[\"a c\"]", LEVEL, "not in model.vocab"},
    {"\"ab\":256", "[\"a b\",\"a b\"]", LEVEL, "a pair twice"},
    {"\"ab\":256", "[\"a b c\"]", LEVEL, "neither"},
    {"\"ab\":256", "[\"ab\"]", LEVEL, "neither"},
    {"\"ab\":256", "[[\"a\"]]", LEVEL, "neither"},
    {"\"ab\":256", "[[\"a\",\"b\",\"c\"]]", LEVEL, "neither"},
    {"\"ab\":256", "[[\"a\",1]]", LEVEL, "neither"},
    {"\"ab\":256", "{}", LEVEL, "no array"},
    {"\"ab\":256", "[],\"dropout\":0.1", LEVEL, "dropout"},
    {"\"ab\":256", "[],\"byte_fallback\":true", LEVEL, "byte_fallback"},
    {"\"ab\":256", "[],\"end_of_word_suffix\":\"</w>\"", LEVEL, "suffix"},
    {"\"ab\":256", "[]", LEVEL ",\"normalizer\":{\"type\":\"NFC\"}", "NFC"},
    {"\"ab\":256", "[]", ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}",
     "Metaspace"},
    {"\"ab\":256", "[]", LEVEL ",\"post_processor\":{\"type\":\"Bert\"}",
     "Bert"},
    {"\"ab\":256", "[]",
     LEVEL ",\"added_tokens\":[{\"id\":9999999,\"content\":\"x\"}]",
     "added_tokens"},
    {"\"ab\":256", "[]",
     LEVEL ",\"added_tokens\":[{\"id\":1,\"content\":\"\"}]", "added_tokens"},
    {"\"ab\":256", "[]",
     LEVEL ",\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"lstrip\":true}]",
     "lstrip"},
    {"\"ab\":256", "[]", LEVEL ",\"added_tokens\":7", "added_tokens"},
    {"\"ab\":256", "[]",
     LEVEL ",\"post_processor\":{\"type\":\"TemplateProcessing\","
           "\"single\":[]}",
     "without the text"},
    {"\"ab\":300", "[]", LEVEL BEGINS("301"), "that there is not"},
    {"\"ab\":300", "[]", LEVEL BEGINS("299"), "that there is not"},
    {"\"ab\":256", "[]", SPLIT("\"behavior\":\"Isolated\""), "without pattern"},
    {"\"ab\":256", "[]",
     SPLIT("\"pattern\":{\"String\":\"x\"},\"behavior\":\"Removed\""),
     "Removed"},
    {"\"ab\":256", "[]", REGEX("("), "pattern"},
    {"\"ab\":256", "[]", REGEX(""), "empty"},
    {"\"ab\":256", "[]", REGEX("a*"), "matches nothing"},
    {"\"ab\":256", "[]", REGEX("\\\\w+"), "\\w"},
    {"\"ab\":256", "[]", REGEX("x$"), "$"},
    {"\"ab\":256", "[]", REGEX("x{2}+"), "+"},
    {"\"ab\":256", "[]", REGEX("[a&&b]"), "&&"},
    {"\"ab\":256", "[]", REGEX("x\\\\"), "pattern"},
};

START_TEST(what_is_refused)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = by_hand(wrong[i].vocab, wrong[i].merges, wrong[i].rest);
        refused(text, wrong[i].message);
        fsdp_free(text);
    }
    refused("", "");
    refused("[]", "model is missing");
    refused("{\"model\":{\"type\":\"Unigram\"}}", "Unigram");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
            "256 bytes");
    refused("{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "vocab");
}
END_TEST

START_TEST(cut_anywhere)
{
    char *text = by_hand("\"ab\":256", "[\"a b\"]", LEVEL);
    size_t length = strlen(text);
    for (size_t end = 0; end < length; end += 97) {
        char *cut = fsdp_format("%.*s", (int)end, text);
        refused(cut, "");
        fsdp_free(cut);
    }
    fsdp_free(text);
    char *deep = fsdp_calloc(FSDP_MEM_OTHER, 300001);
    memset(deep, '[', 300000);
    refused(deep, "");
    fsdp_free(deep);
    unlink(file_name);
    ck_assert(mkfifo(file_name, 0600) == 0);
    fsdp_tokenizer_t *t;
    ck_assert(fsdp_tokenizer_open(file_name, &t) == FSDP_ERR_INPUT);
}
END_TEST

/* A pattern that takes exponential time gives up. */
START_TEST(a_pattern_without_end)
{
    char *text =
        by_hand("\"ab\":256", "[]", REGEX("(?:a|aa)+(?:a|aa)+(?:x|y)"));
    char many[200];
    int32_t *token;
    size_t count;
    fsdp_tokenizer_t *t;
    put_file(text);
    ck_assert(fsdp_tokenizer_open(file_name, &t) == FSDP_OK);
    memset(many, 'a', sizeof many);
    ck_assert(fsdp_tokenizer_encode(t, many, sizeof many, false, &token, &count,
                                    NULL) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "gives up") != NULL);
    ck_assert(token == NULL);
    fsdp_tokenizer_close(&t);
    fsdp_free(text);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("tokenizer_by_hand");
    TCase *tcase = tcase_create("tokenizer");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, the_smallest);
    tcase_add_test(tcase, between_matches);
    tcase_add_test(tcase, what_is_refused);
    tcase_add_test(tcase, cut_anywhere);
    tcase_add_test(tcase, a_pattern_without_end);
    return mck_run(argc, argv, suite);
}
