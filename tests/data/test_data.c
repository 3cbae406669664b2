/* Text and tables: what a sample is, which one is drawn, what is refused. */
/* Ranks: 1 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsdp/data.h"
#include "mck.h"

static char path[64];
static fsdp_dataset_t *data;

static void
name_file(void)
{
    snprintf(path, sizeof path, "/tmp/fsdp-data-XXXXXX");
    int fd = mkstemp(path);
    ck_assert(fd >= 0);
    close(fd);
}

static void
remove_file(void)
{
    fsdp_dataset_close(&data);
    unlink(path);
}

static void
put(const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    fwrite(text, 1, length, file);
    fclose(file);
}

static fsdp_status_t
csv(const char *text)
{
    put(text, strlen(text));
    return fsdp_dataset_open_csv(path, -1, &data);
}

/* ---- text ------------------------------------------------------------------ */

enum { LENGTH = 1003, CONTEXT = 7, HELD_OUT = LENGTH / 10 };

static unsigned char
byte_at(size_t i)
{
    return (unsigned char)(i * 31 + i / 256);
}

static void
put_text(void)
{
    char text[LENGTH];
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = (char)byte_at(i);
    put(text, LENGTH);
}

/* The last tenth is held out; no training sample reaches into it. */
START_TEST(text_samples)
{
    int32_t x[CONTEXT], y[CONTEXT];
    put_text();
    ck_assert(fsdp_dataset_open_text(path, CONTEXT, &data) == FSDP_OK);
    size_t begin[2] = {0, LENGTH - HELD_OUT};
    size_t end[2] = {LENGTH - HELD_OUT, LENGTH};
    for (int s = 0; s < 2; s++) {
        size_t count = fsdp_dataset_size(data, (fsdp_split_t)s);
        ck_assert_uint_eq(count, end[s] - begin[s] - CONTEXT);
        for (size_t n = 0; n < count; n += s ? 1 : 100) {
            fsdp_dataset_text_sample(data, (fsdp_split_t)s, n, x, y);
            for (size_t i = 0; i < CONTEXT; i++) {
                ck_assert_int_eq(x[i], byte_at(begin[s] + n + i));
                ck_assert_int_eq(y[i], byte_at(begin[s] + n + i + 1));
            }
        }
    }
}
END_TEST

/* Four letters, equally often: log 4. */
START_TEST(entropy_of_bytes)
{
    char text[800];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcd"[i % 4];
    put(text, sizeof text);
    ck_assert(fsdp_dataset_open_text(path, 3, &data) == FSDP_OK);
    ck_assert(fabs(fsdp_dataset_unigram_entropy(data) - log(4.0)) < 4e-16 * 4);
}
END_TEST

/* Every start about equally often; another seed, step or place, another one. */
START_TEST(text_draws_are_uniform)
{
    enum { DRAWS = 200000 };
    put_text();
    ck_assert(fsdp_dataset_open_text(path, CONTEXT, &data) == FSDP_OK);
    size_t n = fsdp_dataset_size(data, FSDP_TRAIN);
    int *hits = calloc(n, sizeof *hits);
    for (size_t i = 0; i < DRAWS; i++) {
        size_t d = fsdp_dataset_draw(data, 5, 1 + i / 16, i % 16, 16);
        ck_assert(d < n);
        hits[d]++;
    }
    /* Poisson: six standard deviations for about 900 starts. */
    double mean = (double)DRAWS / (double)n;
    for (size_t i = 0; i < n; i++)
        ck_assert(fabs(hits[i] - mean) < 6 * sqrt(mean));
    free(hits);
    int same = 0;
    for (size_t i = 0; i < 100; i++) {
        size_t d = fsdp_dataset_draw(data, 5, 9, i, 100);
        ck_assert_uint_eq(d, fsdp_dataset_draw(data, 5, 9, i, 1000));
        same += d == fsdp_dataset_draw(data, 6, 9, i, 100);
        same += d == fsdp_dataset_draw(data, 5, 10, i, 100);
        same += d == fsdp_dataset_draw(data, 5, 9, i + 1, 100);
    }
    ck_assert_int_lt(same, 10);
}
END_TEST

START_TEST(bad_text_is_refused)
{
    ck_assert(fsdp_dataset_open_text("/nowhere/x", 4, &data) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "/nowhere/x") != NULL);
    ck_assert(fsdp_dataset_open_text("/tmp", 4, &data) == FSDP_ERR_INPUT);
    put("", 0);
    ck_assert(fsdp_dataset_open_text(path, 4, &data) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "empty") != NULL);
    put("0123456789012345678901234567890123456789012345678", 49);
    ck_assert(fsdp_dataset_open_text(path, 4, &data) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "short") != NULL);
    put("01234567890123456789012345678901234567890123456789", 50);
    ck_assert(fsdp_dataset_open_text(path, 4, &data) == FSDP_OK);
    unlink(path);
    ck_assert(mkfifo(path, 0600) == 0);
    fsdp_dataset_close(&data);
    ck_assert(fsdp_dataset_open_text(path, 4, &data) == FSDP_ERR_INPUT);
}
END_TEST

/* ---- tables ----------------------------------------------------------------- */

/* Row r: features r, -2 r; label r % 3.  All rows are found again, once. */
static void
expect_rows(size_t rows, double scale)
{
    bool *seen = calloc(rows, sizeof *seen);
    size_t count = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < fsdp_dataset_size(data, (fsdp_split_t)s); i++) {
            double x[2];
            int32_t label;
            fsdp_dataset_csv_sample(data, (fsdp_split_t)s, i, x, &label);
            size_t r = (size_t)llround(x[0] * scale);
            ck_assert(r < rows && !seen[r]);
            seen[r] = true;
            ck_assert(x[0] == (double)r / scale);
            ck_assert(x[1] == -2.0 * (double)r / scale);
            ck_assert_int_eq(label, (int)(r % 3));
            count++;
        }
    ck_assert_uint_eq(count, rows);
    free(seen);
}

/* The largest absolute value of the training rows. */
static double
largest_of_training(void)
{
    double largest = 0, x[2], first = 0;
    int32_t label;
    for (size_t i = 0; i < fsdp_dataset_size(data, FSDP_TRAIN); i++) {
        fsdp_dataset_csv_sample(data, FSDP_TRAIN, i, x, &label);
        largest = fmax(largest, fabs(x[1]));
        first = fmax(first, fabs(x[0]));
    }
    ck_assert(first <= 0.5);
    return largest;
}

static void
put_table(const char *header, const char *end, size_t rows)
{
    static char text[100000];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", header);
    for (size_t r = 0; r < rows; r++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%zu, -%zu,%zu%s", r, 2 * r, r % 3, end);
    put(text, used);
}

START_TEST(table_is_read)
{
    static const char *const headers[] = {"", "a,b,class\n", "\xef\xbb\xbf",
                                          "\"x\",y,z\r\n"};
    put_table(headers[_i], _i % 2 ? "\r\n" : "\n", 500);
    ck_assert_msg(fsdp_dataset_open_csv(path, _i % 2 ? -1 : 2, &data) ==
                      FSDP_OK,
                  "%s", fsdp_error_message());
    ck_assert_uint_eq(fsdp_dataset_features(data), 2);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 3);
    ck_assert(largest_of_training() == 1.0);
    size_t held = fsdp_dataset_size(data, FSDP_VALIDATION);
    ck_assert(held > 60 && held < 140); /* 100, 4.5 standard deviations */
    /* The scale is twice the largest training row's number. */
    double x[2];
    int32_t label;
    fsdp_dataset_csv_sample(data, FSDP_TRAIN, 1, x, &label);
    for (double scale = 2 * 499; scale > 0; scale -= 2) {
        double r = round(x[0] * scale);
        if (r / scale == x[0] && (int)r % 3 == label && r <= 20) {
            expect_rows(500, scale);
            return;
        }
    }
    ck_abort_msg("no scale fits");
}
END_TEST

START_TEST(other_label_column)
{
    put_table("", "\n", 300);
    ck_assert(fsdp_dataset_open_csv(path, 0, &data) == FSDP_OK);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 300);
    fsdp_dataset_close(&data);
    ck_assert(fsdp_dataset_open_csv(path, 1, &data) == FSDP_ERR_INPUT);
    ck_assert(fsdp_dataset_open_csv(path, 3, &data) == FSDP_ERR_INPUT);
}
END_TEST

/* An epoch is a permutation; the next one is another. */
START_TEST(epochs_are_permutations)
{
    put_table("", "\n", 300);
    ck_assert(fsdp_dataset_open_csv(path, -1, &data) == FSDP_OK);
    size_t n = fsdp_dataset_size(data, FSDP_TRAIN), batch = 7;
    size_t first[3];
    for (size_t epoch = 0; epoch < 3; epoch++) {
        bool *seen = calloc(n, sizeof *seen);
        for (size_t i = 0; i < n; i++) {
            size_t k = epoch * n + i;
            size_t d =
                fsdp_dataset_draw(data, 3, 1 + k / batch, k % batch, batch);
            ck_assert(d < n && !seen[d]);
            seen[d] = true;
            if (i == 0)
                first[epoch] = d;
        }
        free(seen);
    }
    ck_assert(first[0] != first[1] || first[1] != first[2]);
}
END_TEST

START_TEST(bad_table_is_refused)
{
    static const struct {
        const char *text, *names;
    } bad[] = {
        {"1,2,0\n3,4\n", "line 2"},
        {"1,2,0\n3,4,1,9\n", "line 2"},
        {"1,2,0\n3,x,1\n", "line 2, column 2"},
        {"1,2,0\n3,,1\n", "line 2, column 2"},
        {"1,2,0\n3,nan,1\n", "line 2, column 2"},
        {"1,2,0\n3,inf,1\n", "line 2, column 2"},
        {"1,2,0\n3,1e999,1\n", "line 2, column 2"},
        {"1,2,0\n3,0x10,1\n", "line 2, column 2"},
        {"1,2,0\n3,4 5,1\n", "line 2, column 2"},
        {"1,2,0\n\"3\",4,1\n", "line 2, column 1"},
        {"1,2,0\n3,4,0.5\n", "line 2, column 3"},
        {"1,2,0\n3,4,-1\n", "line 2, column 3"},
        {"1,2,0\n3,4,1000000\n", "line 2, column 3"},
        {"a,b,c\n", "no row"},
        {"\n\n", "no row"},
        {"1\n2\n3\n", "column"},
        {"1,2,0\n", "short"},
    };
    ck_assert_msg(csv(bad[_i].text) == FSDP_ERR_INPUT, "accepted: %s",
                  bad[_i].text);
    ck_assert(data == NULL);
    ck_assert_msg(strstr(fsdp_error_message(), bad[_i].names) != NULL,
                  "\"%s\" does not say %s", fsdp_error_message(),
                  bad[_i].names);
    ck_assert(strstr(fsdp_error_message(), path) != NULL);
}
END_TEST

/* The digits: 1,797 rows of 64 pixels, ten classes (data/README). */
START_TEST(digits_are_there)
{
    char name[1024];
    snprintf(name, sizeof name, "%s/digits.csv", getenv("FSDP_DATA_DIR"));
    ck_assert(fsdp_dataset_open_csv(name, -1, &data) == FSDP_OK);
    ck_assert_uint_eq(fsdp_dataset_size(data, FSDP_TRAIN) +
                          fsdp_dataset_size(data, FSDP_VALIDATION),
                      1797);
    ck_assert_uint_eq(fsdp_dataset_features(data), 64);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 10);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("data");
    TCase *tcase = tcase_create("files");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, name_file, remove_file);
    tcase_add_test(tcase, text_samples);
    tcase_add_test(tcase, entropy_of_bytes);
    tcase_add_test(tcase, text_draws_are_uniform);
    tcase_add_test(tcase, bad_text_is_refused);
    tcase_add_loop_test(tcase, table_is_read, 0, 4);
    tcase_add_test(tcase, other_label_column);
    tcase_add_test(tcase, epochs_are_permutations);
    tcase_add_loop_test(tcase, bad_table_is_refused, 0, 17);
    tcase_add_test(tcase, digits_are_there);
    return mck_run(argc, argv, suite);
}
