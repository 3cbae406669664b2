/* Writing JSON that anyone reads back. */
/* Ranks: 1 */
#include "serial.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fsdp/memory.h"
#include "fsdp/random.h"

static fsdp_json_t *
parse(const char *text)
{
    fsdp_json_t *document;
    fsdp_status_t status =
        fsdp_json_parse("test", text, strlen(text), &document);
    ck_assert_msg(status == FSDP_OK, "%s: %s", text, fsdp_error_message());
    return document;
}

START_TEST(writes_a_line)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    for (int round = 0; round < 2; round++) {
        fsdp_json_open_object(w);
        fsdp_json_key(w, "event");
        fsdp_json_string(w, "step");
        fsdp_json_key(w, "loss");
        fsdp_json_double(w, 0.1);
        fsdp_json_key(w, "ranks");
        fsdp_json_open_array(w);
        fsdp_json_integer(w, INT64_MIN);
        fsdp_json_integer(w, INT64_MAX);
        fsdp_json_open_object(w);
        fsdp_json_close_object(w);
        fsdp_json_open_array(w);
        fsdp_json_close_array(w);
        fsdp_json_bool(w, true);
        fsdp_json_bool(w, false);
        fsdp_json_null(w);
        fsdp_json_string(w, NULL);
        fsdp_json_close_array(w);
        fsdp_json_key(w, "e");
        fsdp_json_float(w, 0.1f);
        fsdp_json_close_object(w);
        ck_assert_str_eq(
            fsdp_json_writer_text(w),
            "{\"event\":\"step\",\"loss\":0.1,\"ranks\":"
            "[-9223372036854775808,9223372036854775807,{},[],true,false,"
            "null,null],\"e\":0.1}");
        ck_assert_uint_eq(fsdp_json_writer_length(w),
                          strlen(fsdp_json_writer_text(w)));
        fsdp_json_writer_reset(w);
        ck_assert_str_eq(fsdp_json_writer_text(w), "");
    }
    fsdp_json_writer_destroy(&w);
    ck_assert(w == NULL);
    fsdp_json_writer_destroy(&w);
}
END_TEST

static void
check_number(fsdp_json_writer_t *w, double x, bool is_float, const char *want)
{
    fsdp_json_writer_reset(w);
    if (is_float)
        fsdp_json_float(w, (float)x);
    else
        fsdp_json_double(w, x);
    ck_assert_str_eq(fsdp_json_writer_text(w), want);
}

START_TEST(numbers_are_short)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    check_number(w, 0.0, false, "0");
    check_number(w, -0.0, false, "-0");
    check_number(w, 1.0, false, "1");
    check_number(w, 1.0 / 3.0, false, "0.3333333333333333");
    check_number(w, 0.1 + 0.2, false, "0.30000000000000004");
    check_number(w, DBL_MAX, false, "1.7976931348623157e+308");
    check_number(w, 0x1p-1074, false, "5e-324");
    check_number(w, (double)(1.0f / 3.0f), true, "0.33333334");
    check_number(w, 0x1p-149, true, "1e-45");
    check_number(w, (double)FLT_MAX, true, "3.4028235e+38");
    check_number(w, 16777216.0, true, "16777216");
    check_number(w, NAN, false, "null");
    check_number(w, -INFINITY, false, "null");
    check_number(w, INFINITY, true, "null");
    fsdp_json_writer_destroy(&w);
}
END_TEST

/* Any double and float comes back the same, through the reader as well. */
START_TEST(numbers_read_back)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t block[4];
        float f;
        double d;
        fsdp_random_block(9, FSDP_RANDOM_TEST, 0, 0, i, block);
        memcpy(&f, &block[0], sizeof f);
        memcpy(&d, &block[2], sizeof d);
        if (!isfinite(f) || !isfinite(d))
            continue;
        fsdp_json_writer_reset(w);
        fsdp_json_float(w, f);
        ck_assert(strtof(fsdp_json_writer_text(w), NULL) == f);
        ck_assert_uint_le(fsdp_json_writer_length(w), 15);
        fsdp_json_writer_reset(w);
        fsdp_json_double(w, d);
        fsdp_json_t *document = parse(fsdp_json_writer_text(w));
        double back = 0.0;
        ck_assert(fsdp_json_get_number(document, &back) && back == d);
        fsdp_json_destroy(&document);
    }
    fsdp_json_writer_destroy(&w);
}
END_TEST

START_TEST(strings_are_escaped)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_string(w,
                     "a\"b\\c/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9\xf0\x9f\x98\x80");
    ck_assert_str_eq(fsdp_json_writer_text(w),
                     "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f"
                     "\xc3\xa9\xf0\x9f\x98\x80\"");
    fsdp_json_writer_reset(w);
    fsdp_json_string_n(w, "x\0y", 3);
    ck_assert_str_eq(fsdp_json_writer_text(w), "\"x\\u0000y\"");
    fsdp_json_writer_reset(w);
    fsdp_json_string_n(w, "\xc3\xa9", 1); /* half a character */
    ck_assert_str_eq(fsdp_json_writer_text(w), "\"\xef\xbf\xbd\"");
    fsdp_json_writer_destroy(&w);
}
END_TEST

/* A model of bytes writes anything; each byte that begins no character becomes
 * one U+FFFD. */
START_TEST(bad_utf8_is_replaced)
{
#define R "\xef\xbf\xbd"
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a\xff"
         "b",
         "\"a" R "b\""},
        {"\xc3", "\"" R "\""},             /* cut short */
        {"\xe2\x82z", "\"" R R "z\""},     /* cut short */
        {"\xc0\x80", "\"" R R "\""},       /* overlong */
        {"\xe0\x9f\xbf", "\"" R R R "\""}, /* overlong */
        {"\xf0\x8f\xbf\xbf", "\"" R R R R "\""},
        {"\xed\xa0\x80", "\"" R R R "\""},       /* a surrogate */
        {"\xf4\x90\x80\x80", "\"" R R R R "\""}, /* above U+10FFFF */
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80",
         "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\""},
    };
#undef R
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fsdp_json_writer_reset(w);
        fsdp_json_string(w, cases[i].text);
        ck_assert_str_eq(fsdp_json_writer_text(w), cases[i].want);
    }
    fsdp_json_writer_destroy(&w);
}
END_TEST

/* The reader, which is another program's, takes whatever bytes we write. */
START_TEST(any_bytes_give_json)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    for (uint64_t i = 0; i < 3000; i++) {
        char text[40];
        for (uint64_t k = 0; k < sizeof text; k++) {
            uint32_t word = fsdp_random_word(3, FSDP_RANDOM_TEST, 0, i, k);
            text[k] = (char)(1 + (word & 0x7fffff) % 255);
        }
        fsdp_json_writer_reset(w);
        fsdp_json_open_object(w);
        fsdp_json_key(w, "text");
        fsdp_json_string_n(w, text, sizeof text);
        fsdp_json_close_object(w);
        fsdp_json_t *document = parse(fsdp_json_writer_text(w));
        fsdp_json_destroy(&document);
    }
    fsdp_json_writer_destroy(&w);
}
END_TEST

START_TEST(long_texts_grow)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_array(w);
    for (int i = 0; i < 100000; i++)
        fsdp_json_integer(w, i);
    fsdp_json_close_array(w);
    fsdp_json_t *document = parse(fsdp_json_writer_text(w));
    int64_t last = 0;
    ck_assert_uint_eq(fsdp_json_size(document), 100000);
    ck_assert(fsdp_json_get_integer(fsdp_json_at(document, 99999), &last));
    ck_assert_int_eq(last, 99999);
    fsdp_json_destroy(&document);
    fsdp_json_writer_destroy(&w);
}
END_TEST

static void
value_without_key(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_object(w);
    fsdp_json_integer(w, 1);
}

static void
key_in_array(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_array(w);
    fsdp_json_key(w, "a");
}

static void
key_after_key(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_object(w);
    fsdp_json_key(w, "a");
    fsdp_json_key(w, "b");
}

static void
key_without_value(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_object(w);
    fsdp_json_key(w, "a");
    fsdp_json_close_object(w);
}

static void
wrong_bracket(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_array(w);
    fsdp_json_close_object(w);
}

static void
close_too_often(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_array(w);
    fsdp_json_close_array(w);
    fsdp_json_close_array(w);
}

static void
two_values(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_array(w);
    fsdp_json_close_array(w);
    fsdp_json_null(w);
}

static void
too_deep(void)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    for (int i = 0; i < 1000; i++)
        fsdp_json_open_array(w);
}

START_TEST(misuse_is_found)
{
    static void (*const misuse[])(void) = {
        value_without_key, key_in_array,    key_after_key, key_without_value,
        wrong_bracket,     close_too_often, two_values,    too_deep,
    };
    for (size_t i = 0; i < sizeof misuse / sizeof misuse[0]; i++) {
        ending_t e = serial_ending_of(misuse[i]);
        ck_assert_int_eq(e.status, FSDP_EXIT_FAULT);
        ck_assert(strstr(e.said, "json_writer.c:") != NULL);
    }
}
END_TEST

/* A locale with a decimal comma, made for the test, as most machines lack one.
 * False if the tool for that, or its character maps, are not installed. */
static bool
make_comma_locale(const char *folder)
{
    char *source = fsdp_format("%s/source", folder);
    char *command = fsdp_format("localedef -c -i %s -f ANSI_X3.4-1968 "
                                "%s/comma >/dev/null 2>&1",
                                source, folder);
    FILE *file = fopen(source, "w");
    ck_assert(file != NULL);
    fputs("comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
          "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n",
          file);
    fclose(file);
    int ignored = system(command);
    (void)ignored; /* it warns of what is missing in the locale */
    setenv("LOCPATH", folder, 1);
    bool made = setlocale(LC_NUMERIC, "comma") != NULL;
    fsdp_free(command);
    fsdp_free(source);
    return made;
}

static void
check_comma_is_not_seen(void)
{
    char printed[16];
    snprintf(printed, sizeof printed, "%.1f", 1.5);
    ck_assert_str_eq(printed, "1,5"); /* the locale is at work */

    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_array(w);
    fsdp_json_double(w, 1234567.25);
    fsdp_json_float(w, -0.5f);
    fsdp_json_integer(w, 1234567);
    fsdp_json_close_array(w);
    ck_assert_str_eq(fsdp_json_writer_text(w), "[1234567.25,-0.5,1234567]");
    fsdp_json_t *document = parse(fsdp_json_writer_text(w));
    double number = 0.0;
    ck_assert(fsdp_json_get_number(fsdp_json_at(document, 0), &number));
    ck_assert(number == 1234567.25);
    fsdp_json_destroy(&document);
    fsdp_json_writer_destroy(&w);
    snprintf(printed, sizeof printed, "%.1f", 1.5);
    ck_assert_str_eq(printed, "1,5"); /* and still is */
}

START_TEST(locale_does_not_show)
{
    char folder[] = "/tmp/fsdp-locale-XXXXXX";
    ck_assert(mkdtemp(folder) != NULL);
    if (make_comma_locale(folder))
        check_comma_is_not_seen();
    else
        fprintf(stderr, "no locale could be made, so none was tried\n");
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    char *command = fsdp_format("rm -r %s", folder);
    ck_assert(system(command) == 0);
    fsdp_free(command);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("json writer");
    TCase *tcase = tcase_create("json writer");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, writes_a_line);
    tcase_add_test(tcase, numbers_are_short);
    tcase_add_test(tcase, numbers_read_back);
    tcase_add_test(tcase, strings_are_escaped);
    tcase_add_test(tcase, bad_utf8_is_replaced);
    tcase_add_test(tcase, any_bytes_give_json);
    tcase_add_test(tcase, long_texts_grow);
    tcase_add_test(tcase, misuse_is_found);
    tcase_add_test(tcase, locale_does_not_show);
    return serial_run(suite);
}
