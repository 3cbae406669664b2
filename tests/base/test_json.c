/* Reading JSON strictly. */
/* Ranks: 1 */
#include "serial.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "fsdp/memory.h"

static fsdp_json_t *
parse(const char *text)
{
    fsdp_json_t *document;
    fsdp_status_t status =
        fsdp_json_parse("test", text, strlen(text), &document);
    ck_assert_msg(status == FSDP_OK, "%s: %s", text, fsdp_error_message());
    return document;
}

START_TEST(reads_all_kinds)
{
    fsdp_json_t *d =
        parse(" {\"n\": null, \"b\": [true, false], \"i\": -7,\n"
              " \"r\": 2.5e1, \"s\": \"a\\u00e9\\n\", \"o\": {}} ");
    const fsdp_json_t *array = fsdp_json_member(d, "b");
    bool yes = false, no = true;
    int64_t integer = 0;
    double number = 0.0;
    ck_assert(fsdp_json_is(d, FSDP_JSON_OBJECT));
    ck_assert_uint_eq(fsdp_json_size(d), 6);
    ck_assert(fsdp_json_is(fsdp_json_member(d, "n"), FSDP_JSON_NULL));
    ck_assert_uint_eq(fsdp_json_size(array), 2);
    ck_assert(fsdp_json_get_bool(fsdp_json_at(array, 0), &yes) && yes);
    ck_assert(fsdp_json_get_bool(fsdp_json_at(array, 1), &no) && !no);
    ck_assert(fsdp_json_get_integer(fsdp_json_member(d, "i"), &integer));
    ck_assert_int_eq(integer, -7);
    ck_assert(fsdp_json_get_number(fsdp_json_member(d, "i"), &number));
    ck_assert(number == -7.0);
    ck_assert(fsdp_json_get_number(fsdp_json_member(d, "r"), &number));
    ck_assert(number == 25.0);
    ck_assert_str_eq(fsdp_json_get_string(fsdp_json_member(d, "s")),
                     "a\xc3\xa9\n");
    ck_assert(fsdp_json_is(fsdp_json_member(d, "o"), FSDP_JSON_OBJECT));
    fsdp_json_destroy(&d);
    ck_assert(d == NULL);
    fsdp_json_destroy(&d);
}
END_TEST

START_TEST(wrong_kinds_are_refused)
{
    fsdp_json_t *d = parse("[1.0, \"2\", 3]");
    const fsdp_json_t *real = fsdp_json_at(d, 0), *string = fsdp_json_at(d, 1);
    int64_t integer = 99;
    double number = 99.0;
    bool truth = true;
    ck_assert(!fsdp_json_get_integer(real, &integer));
    ck_assert(!fsdp_json_get_integer(string, &integer));
    ck_assert(!fsdp_json_get_number(string, &number));
    ck_assert(!fsdp_json_get_bool(real, &truth));
    ck_assert(integer == 99 && number == 99.0 && truth);
    ck_assert(fsdp_json_get_string(real) == NULL);
    ck_assert(fsdp_json_at(d, 3) == NULL);
    ck_assert(fsdp_json_at(string, 0) == NULL);
    ck_assert(fsdp_json_member(d, "x") == NULL);
    ck_assert_uint_eq(fsdp_json_size(string), 0);
    ck_assert_str_eq(fsdp_json_kind_name(real), "a real number");
    ck_assert_str_eq(fsdp_json_kind_name(string), "a string");
    ck_assert_str_eq(fsdp_json_kind_name(d), "an array");
    ck_assert(fsdp_json_first(d).key == NULL);
    fsdp_json_destroy(&d);
}
END_TEST

START_TEST(nothing_is_allowed_everywhere)
{
    int64_t integer;
    double number;
    bool truth;
    ck_assert(fsdp_json_member(NULL, "x") == NULL);
    ck_assert(fsdp_json_at(NULL, 0) == NULL);
    ck_assert_uint_eq(fsdp_json_size(NULL), 0);
    ck_assert(!fsdp_json_is(NULL, FSDP_JSON_NULL));
    ck_assert(!fsdp_json_get_integer(NULL, &integer));
    ck_assert(!fsdp_json_get_number(NULL, &number));
    ck_assert(!fsdp_json_get_bool(NULL, &truth));
    ck_assert(fsdp_json_get_string(NULL) == NULL);
    ck_assert(fsdp_json_first(NULL).key == NULL);
    ck_assert_str_eq(fsdp_json_kind_name(NULL), "nothing");
}
END_TEST

START_TEST(members_come_in_the_order_of_the_text)
{
    char text[4096] = "{", order[4096] = "";
    for (int i = 0; i < 200; i++) {
        int key = i * 77 % 200;
        snprintf(text + strlen(text), 20, "%s\"k%d\":%d", i > 0 ? "," : "", key,
                 i);
    }
    strcat(text, "}");
    fsdp_json_t *d = parse(text);
    int64_t value, i = 0;
    for (fsdp_json_iter_t it = fsdp_json_first(d); it.key != NULL;
         fsdp_json_next(&it), i++) {
        snprintf(order, sizeof order, "k%d", (int)(i * 77 % 200));
        ck_assert_str_eq(it.key, order);
        ck_assert(fsdp_json_get_integer(it.value, &value) && value == i);
    }
    ck_assert_int_eq(i, 200);
    fsdp_json_destroy(&d);
}
END_TEST

START_TEST(integers_keep_64_bits)
{
    fsdp_json_t *d = parse("[9007199254740993, 9223372036854775807,"
                           " -9223372036854775808]");
    const int64_t want[] = {9007199254740993, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 3; i++) {
        int64_t got = 0;
        ck_assert(fsdp_json_get_integer(fsdp_json_at(d, i), &got));
        ck_assert_int_eq(got, want[i]);
    }
    fsdp_json_destroy(&d);
}
END_TEST

#define BAD(text)                                                              \
    {                                                                          \
        text, sizeof(text) - 1                                                 \
    }

static const struct bad {
    const char *text;
    size_t length;
} bad[] = {
    BAD(""),
    BAD(" "),
    BAD("{"),
    BAD("{\"a\":1,\"a\":2}"),
    BAD("[{\"a\":1,\"b\":{},\"\\u0061\":2}]"),
    BAD("{} x"),
    BAD("{}{}"),
    BAD("{}\0"),
    BAD("\xef\xbb\xbf{}"),
    BAD("\"\xff\""),
    BAD("\"\xc0\x80\""),
    BAD("\"\xed\xa0\x80\""),
    BAD("\"\\ud800\""),
    BAD("\"a\\u0000b\""),
    BAD("\"a\0b\""),
    BAD("\"a\nb\""),
    BAD("NaN"),
    BAD("[nan]"),
    BAD("Infinity"),
    BAD("-Infinity"),
    BAD("[01]"),
    BAD("[1.]"),
    BAD("[.5]"),
    BAD("[+1]"),
    BAD("[1e999]"),
    BAD("[9223372036854775808]"),
    BAD("[1,]"),
    BAD("{\"a\":1,}"),
    BAD("{a:1}"),
    BAD("{'a':1}"),
    BAD("[1 2]"),
    BAD("[0x10]"),
    BAD("[1] // one"),
    BAD("tru"),
};

START_TEST(bad_text_is_refused)
{
    fsdp_json_t *document = (fsdp_json_t *)&document;
    fsdp_error(FSDP_OK, "%s", "");
    ck_assert_int_eq(fsdp_json_parse("weights.safetensors", bad[_i].text,
                                     bad[_i].length, &document),
                     FSDP_ERR_INPUT);
    ck_assert(document == NULL);
    const char *start = "weights.safetensors: line ";
    ck_assert(strncmp(fsdp_error_message(), start, strlen(start)) == 0);
}
END_TEST

START_TEST(error_tells_line_and_byte)
{
    const char text[] = "{\"a\": 1,\n \"b\": x}";
    fsdp_json_t *document;
    fsdp_json_parse("f", text, strlen(text), &document);
    /* x is the 16th byte; the message counts the byte after it or it. */
    int line = 0, byte = 0;
    ck_assert_int_eq(
        sscanf(fsdp_error_message(), "f: line %d, byte %d: ", &line, &byte), 2);
    ck_assert_int_eq(line, 2);
    ck_assert(byte >= 15 && byte <= 17);
}
END_TEST

/* Text that is not read beyond its length: what follows would be an error. */
START_TEST(length_is_the_end)
{
    fsdp_json_t *document;
    ck_assert_int_eq(fsdp_json_parse("f", "[1]]]", 3, &document), FSDP_OK);
    fsdp_json_destroy(&document);
    ck_assert_int_eq(fsdp_json_parse("f", "[12]", 3, &document),
                     FSDP_ERR_INPUT);
}
END_TEST

START_TEST(hashes_have_sixteen_digits)
{
    fsdp_json_t *d = parse(
        "[\"0123456789abcdef\",\"fedcba9876543210\","
        "\"123456789abcdef\",\"00123456789abcdef\","
        "\"0123456789abcdefg\",\"0123456789ABCDEF\",\"0x23456789abcdef\",12,"
        "null]");
    uint64_t hash = 7;
    ck_assert(fsdp_json_get_hash(fsdp_json_at(d, 0), &hash));
    ck_assert(hash == 0x0123456789abcdef);
    ck_assert(fsdp_json_get_hash(fsdp_json_at(d, 1), &hash));
    ck_assert(hash == 0xfedcba9876543210);
    for (size_t i = 2; i <= 9; i++) /* the last is missing */
        ck_assert(!fsdp_json_get_hash(fsdp_json_at(d, i), &hash));
    ck_assert(hash == 0xfedcba9876543210);
    fsdp_json_destroy(&d);
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_object(w);
    fsdp_json_put_hash(w, "h", 0x0a);
    fsdp_json_close_object(w);
    ck_assert_str_eq(fsdp_json_writer_text(w), "{\"h\":\"000000000000000a\"}");
    fsdp_json_writer_destroy(&w);
}
END_TEST

static fsdp_status_t
parse_nested(size_t depth)
{
    char *text = fsdp_alloc(FSDP_MEM_OTHER, 2 * depth);
    fsdp_json_t *document;
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    fsdp_status_t status = fsdp_json_parse("deep", text, 2 * depth, &document);
    fsdp_json_destroy(&document);
    fsdp_free(text);
    return status;
}

START_TEST(depth_is_limited)
{
    ck_assert_int_eq(parse_nested(2000), FSDP_OK);
    ck_assert_int_eq(parse_nested(2100), FSDP_ERR_INPUT);
    ck_assert_int_eq(parse_nested(1000000), FSDP_ERR_INPUT);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, reads_all_kinds);
    tcase_add_test(tcase, wrong_kinds_are_refused);
    tcase_add_test(tcase, nothing_is_allowed_everywhere);
    tcase_add_test(tcase, members_come_in_the_order_of_the_text);
    tcase_add_test(tcase, integers_keep_64_bits);
    tcase_add_loop_test(tcase, bad_text_is_refused, 0,
                        sizeof bad / sizeof bad[0]);
    tcase_add_test(tcase, error_tells_line_and_byte);
    tcase_add_test(tcase, length_is_the_end);
    tcase_add_test(tcase, hashes_have_sixteen_digits);
    tcase_add_test(tcase, depth_is_limited);
    return serial_run(suite);
}
