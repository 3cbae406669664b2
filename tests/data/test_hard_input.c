/* What files from other machines bring along, and messages that lead to the
 * very field. */
/* Ranks: 1 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "fsdp/memory.h"
#include "mck.h"

/* The message has all of the words, which bars divide. */
static void
expect_words(const char *words)
{
    char copy[256], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", words);
    while ((word = strsep(&rest, "|")) != NULL)
        ck_assert_msg(strstr(fsdp_error_message(), word) != NULL,
                      "\"%s\" does not say %s", fsdp_error_message(), word);
    ck_assert(strstr(fsdp_error_message(), path) != NULL);
    ck_assert(strchr(fsdp_error_message(), '\n') == NULL);
}

/* ---- tables --------------------------------------------------------------- */

/* Twenty rows of the features -16, 4, 0.5 and the label 1, in all spellings;
 * the scale is 16 whichever rows are held out. */
static const char *const spellings[][3] = {
    {"", "-16,4,0.5,1\n", ""},
    {"", "-16,4,0.5,1\n", "-16,4,0.5,1"},
    {"", "-16,4,0.5,1\r\n", "-16,4,0.5,1\r\n"},
    {"", "-16,4,0.5,1\r\n", "-16,4,0.5,1\r"},
    {"\xef\xbb\xbf", "-16,4,0.5,1\r\n", ""},
    {"\xef\xbb\xbf"
     "a,b,c,d\r\n",
     "-16,4,0.5,1\r\n", "\r\n\r\n"},
    {"a, \"b\" ,\"c;d\",\n", "-16,4,0.5,1\n", "\n"},
    {",b,c,d\n", "-16,4,0.5,1\n", "\n"},
    {"\n\n", "-16,4,0.5,1\n\n", ""},
    {"", " -16\t, +4 ,.5,1. \n", ""},
    {"", "-1.6e1,4E0,5e-1,10e-1\n", ""},
    {"", "-16,4,0.5000000000000000000000000000,0001\n", ""},
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

static void
expect_twenty(size_t rows)
{
    size_t count = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < fsdp_dataset_size(data, (fsdp_split_t)s); i++) {
            double x[3];
            int32_t label;
            fsdp_dataset_csv_sample(data, (fsdp_split_t)s, i, x, &label);
            ck_assert(x[0] == -1.0 && x[1] == 0.25 && x[2] == 0.03125);
            ck_assert_int_eq(label, 1);
            count++;
        }
    ck_assert_uint_eq(count, rows);
    ck_assert_uint_eq(fsdp_dataset_features(data), 3);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 2);
    ck_assert(fsdp_dataset_unigram_entropy(data) == 0.0); /* one label only */
}

START_TEST(spelling_does_not_matter)
{
    const char *const *s = spellings[_i];
    put_rows(s[0], s[1], 20, s[2]);
    ck_assert_msg(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK, "%d: %s",
                  _i, fsdp_error_message());
    expect_twenty(strchr(s[2], '1') != NULL ? 21 : 20);
}
END_TEST

/* As in test_json_writer: a locale made for the test. */
START_TEST(decimal_comma_does_not_show)
{
    char *command = fsdp_format(
        "cd %s && printf '%%s\\n' 'comment_char %%' 'escape_char /' LC_NUMERIC "
        "'decimal_point \",\"' 'thousands_sep \".\"' 'grouping 3;3' "
        "'END LC_NUMERIC' >source && localedef -c -i source "
        "-f ANSI_X3.4-1968 ./comma >/dev/null 2>&1",
        folder);
    int ignored = system(command);
    (void)ignored;
    fsdp_free(command);
    setenv("LOCPATH", folder, 1);
    if (setlocale(LC_NUMERIC, "comma") != NULL)
        ck_assert(strtod("1,5", NULL) == 1.5); /* the locale is at work */
    else
        fprintf(stderr, "no locale could be made, so none was tried\n");
    put_rows("", "-16,4,0.5,1\n", 20, "");
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK);
    expect_twenty(20);
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    command = fsdp_format("rm -rf %s/source %s/comma", folder, folder);
    ck_assert(system(command) == 0);
    fsdp_free(command);
}
END_TEST

static const struct {
    const char *head, *bad, *words;
    int label_column;
} bad_tables[] = {
    {"", "1,cat,0\n", "line 21, column 2|\"cat\"|plain numbers", -1},
    {"", "cat,1,0\n", "line 21, column 1|\"cat\"", -1},
    {"a,b,c\n", "1,2,cat\n", "line 22, column 3|\"cat\"", -1},
    {"\xef\xbb\xbf\n\n", "1,cat,0\n", "line 23, column 2", -1},
    {"", "\n\n1,\"2\",0\n", "line 23, column 2|\"\"2\"\"|without quotes", -1},
    {"", "1,,0\n", "line 21, column 2|\"\" is no number", -1},
    {"", "1,2,\n", "line 21, column 3|\"\" is no number", -1},
    {"", "1,nan,0\n", "line 21, column 2|\"nan\"|NaN", -1},
    {"", "1,-inf,0\n", "line 21, column 2|\"-inf\"|infinity", -1},
    {"", "1,-1e999,0\n", "line 21, column 2|too large", -1},
    {"", "1,2;3,0\n", "line 21, column 2|\"2;3\"", -1},
    {"", "1,2 3,0\n", "line 21, column 2|\"2 3\"", -1},
    {"", "1,0x1p3,0\n", "line 21, column 2|\"0x1p3\"", -1},
    {"", "1,2\r3,0\n", "line 21, column 2|\"2?3\"", -1},
    {"", "1,\r2,0\n", "line 21, column 2|\"?2\"", -1},
    {"", "1\r,2,0\n", "line 21, column 1", -1},
    {"", "1,2,0\r\r\n", "line 21, column 3", -1},
    {"", "1,2,0\r1,2,0\r1,2,0\n", "line 21 has 7 columns", -1},
    {"", "1,\xc3\xa9\x1b[2J,0\n", "line 21, column 2|\"???[2J\"", -1},
    {"", "1,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,0\n",
     "line 21, column 2|\"aaaaaaaaaaaaaaaaaaaaaaa\"", -1},
    {"", "1,2,0.5\n", "line 21, column 3|\"0.5\"|whole number|label", -1},
    {"", "1,2,-1\n", "line 21, column 3|\"-1\"|--label-column", -1},
    {"", "1,2,65536\n", "line 21, column 3|\"65536\"|65535", -1},
    {"", "0.5,2,1\n", "line 21, column 1|\"0.5\"|label", 0},
    {"\na,b,c\n", "", "line 2, column 1|\"a\"", -1},
    {"", "1,2\n", "line 21 has 2 columns|3", -1},
    {"", "1,2,0,\n", "line 21 has 4 columns|3", -1},
    {"", " \n", "line 21 has 1 columns|3", -1},
    {"", "", "3 columns|label column 3|0 to 2", 3},
};
enum { BAD_TABLES = sizeof bad_tables / sizeof *bad_tables };

START_TEST(message_leads_to_the_field)
{
    put_rows(bad_tables[_i].head, "1,2,0\n", 20, bad_tables[_i].bad);
    ck_assert_msg(fsdp_dataset_open_csv(path, bad_tables[_i].label_column,
                                        &data) == FSDP_ERR_INPUT,
                  "accepted: %s", bad_tables[_i].bad);
    ck_assert(data == NULL);
    expect_words(bad_tables[_i].words);
}
END_TEST

START_TEST(old_mac_lines_are_refused)
{
    put_rows("", "1,2,0\r", 20, "");
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_ERR_INPUT);
    expect_words("line 1, column 3");
}
END_TEST

START_TEST(zero_byte_is_found)
{
    put("1,2,0\n1,2\0003,0\n", 15);
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_ERR_INPUT);
    expect_words("line 2, column 2|zero byte");
}
END_TEST

START_TEST(largest_label)
{
    put_rows("", "1,65535\n", 20, "");
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 65536);
}
END_TEST

/* Row r holds r + 1.  All are divided by the largest of the training rows,
 * even where the largest of all is held out. */
START_TEST(scale_is_of_the_training_rows)
{
    int held_out_largest = 0;
    for (int rows = 20; rows < 60; rows++) {
        FILE *file = fopen(path, "wb");
        for (int r = 0; r < rows; r++)
            fprintf(file, "%d,%d\n", r + 1, r);
        fclose(file);
        ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK);
        double x, largest = 0;
        int32_t label;
        for (size_t i = 0; i < fsdp_dataset_size(data, FSDP_TRAIN); i++) {
            fsdp_dataset_csv_sample(data, FSDP_TRAIN, i, &x, &label);
            largest = fmax(largest, label + 1);
        }
        for (int s = 0; s < 2; s++)
            for (size_t i = 0; i < fsdp_dataset_size(data, (fsdp_split_t)s);
                 i++) {
                fsdp_dataset_csv_sample(data, (fsdp_split_t)s, i, &x, &label);
                ck_assert(x == (label + 1) / largest);
            }
        held_out_largest += largest < rows;
        fsdp_dataset_close(&data);
    }
    ck_assert_int_gt(held_out_largest, 0);
}
END_TEST

/* Counted by awk: images of each digit, and the sums of all pixels and of each
 * pixel times the number of its column, from 1. */
START_TEST(digits_are_whole)
{
    static const int images[10] = {178, 182, 177, 183, 181,
                                   182, 181, 179, 174, 180};
    int seen[10] = {0}, train[10] = {0};
    long sum = 0, places = 0;
    char *name = fsdp_format("%s/digits.csv", getenv("FSDP_DATA_DIR"));
    ck_assert(fsdp_dataset_open_csv(name, -1, &data) == FSDP_OK);
    fsdp_free(name);
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < fsdp_dataset_size(data, (fsdp_split_t)s); i++) {
            double x[64];
            int32_t label;
            fsdp_dataset_csv_sample(data, (fsdp_split_t)s, i, x, &label);
            seen[label]++;
            train[label] += s == FSDP_TRAIN;
            for (int c = 0; c < 64; c++) {
                sum += (long)(16 * x[c]);
                places += (long)(16 * x[c]) * (c + 1);
            }
        }
    for (int digit = 0; digit < 10; digit++)
        ck_assert_int_eq(seen[digit], images[digit]);
    ck_assert_int_eq(sum, 561718);
    ck_assert_int_eq(places, 18222371);

    /* Ten terms, each within a few roundings of 2^-53. */
    double n = (double)fsdp_dataset_size(data, FSDP_TRAIN), entropy = 0;
    for (int digit = 0; digit < 10; digit++)
        entropy -= train[digit] / n * log(train[digit] / n);
    ck_assert(fabs(fsdp_dataset_unigram_entropy(data) - entropy) <
              entropy * 20 * ldexp(1, -53));
}
END_TEST

/* ---- files ---------------------------------------------------------------- */

/* Root may read everything, so it becomes somebody else for a moment. */
START_TEST(no_permission)
{
    put("0123456789", 10);
    ck_assert(chmod(folder, 0711) == 0 && chmod(path, 0) == 0);
    uid_t user = geteuid();
    ck_assert(user != 0 || seteuid(65534) == 0);
    fsdp_status_t text = fsdp_dataset_open_text(path, 1, &data);
    ck_assert(user != 0 || seteuid(0) == 0);
    ck_assert(text == FSDP_ERR_INPUT);
    expect_words("Permission denied|--data");
}
END_TEST

START_TEST(endless_device)
{
    ck_assert(fsdp_dataset_open_text("/dev/zero", 1, &data) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "regular file") != NULL);
    ck_assert(fsdp_dataset_open_csv("/dev/zero", -1, &data) == FSDP_ERR_INPUT);
    ck_assert(fsdp_dataset_open_csv(folder, -1, &data) == FSDP_ERR_INPUT);
    ck_assert(mkfifo(path, 0600) == 0);
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_ERR_INPUT);
    expect_words("regular file");
}
END_TEST

/* A tenth, rounded down, has to hold context + 1 bytes; the message tells the
 * length that is just enough. */
START_TEST(needed_length_is_told)
{
    static char bytes[120];
    put(bytes, 119);
    ck_assert(fsdp_dataset_open_text(path, 11, &data) == FSDP_ERR_INPUT);
    expect_words("119 bytes|context of 11|120|--context");
    put(bytes, 120);
    ck_assert(fsdp_dataset_open_text(path, 11, &data) == FSDP_OK);
    ck_assert_uint_eq(fsdp_dataset_size(data, FSDP_VALIDATION), 1);
    ck_assert_uint_eq(fsdp_dataset_size(data, FSDP_TRAIN), 108 - 11);
    ck_assert_uint_eq(fsdp_dataset_features(data), 0);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 256);
    ck_assert(fsdp_dataset_unigram_entropy(data) == 0.0);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("hard_input");
    TCase *tcase = tcase_create("hard_input");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_loop_test(tcase, spelling_does_not_matter, 0, SPELLINGS);
    tcase_add_test(tcase, decimal_comma_does_not_show);
    tcase_add_loop_test(tcase, message_leads_to_the_field, 0, BAD_TABLES);
    tcase_add_test(tcase, old_mac_lines_are_refused);
    tcase_add_test(tcase, zero_byte_is_found);
    tcase_add_test(tcase, largest_label);
    tcase_add_test(tcase, scale_is_of_the_training_rows);
    tcase_add_test(tcase, digits_are_whole);
    tcase_add_test(tcase, no_permission);
    tcase_add_test(tcase, endless_device);
    tcase_add_test(tcase, needed_length_is_told);
    return mck_run(argc, argv, suite);
}
