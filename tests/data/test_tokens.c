/* Files of tokens and of images: written here by the rules of their formats, byte by
 * byte, and read back; those that lie are refused. */
/* Ranks: 1 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdp/data.h"
#include "fsdp/memory.h"
#include "mck.h"

enum { TOKENS = 203, CONTEXT = 7, HELD_OUT = TOKENS / 10, ROOM = 1 << 14 };

static char path[80], images[100], labels[100];
static unsigned char bytes[ROOM];
static size_t used;
static fsdp_dataset_t *data;

static void
set_up(void)
{
    snprintf(path, sizeof path, "/tmp/fsdp-tokens-%ld", (long)getpid());
    snprintf(images, sizeof images, "%s-images-idx3-ubyte", path);
    snprintf(labels, sizeof labels, "%s-labels-idx1-ubyte", path);
    used = 0;
}

static void
tear_down(void)
{
    fsdp_dataset_close(&data);
    unlink(path);
    unlink(images);
    unlink(labels);
}

static void
little(uint32_t value, int width)
{
    for (int i = 0; i < width; i++)
        bytes[used++] = (unsigned char)(value >> 8 * i);
}

static void
big(uint32_t value)
{
    for (int i = 3; i >= 0; i--)
        bytes[used++] = (unsigned char)(value >> 8 * i);
}

static void
put(const char *name, size_t length)
{
    FILE *file = fopen(name, "wb");
    ck_assert(file != NULL && fwrite(bytes, 1, length, file) == length);
    fclose(file);
    used = 0;
}

static uint32_t
token(size_t i, int width)
{
    return (uint32_t)(i * 7919 % (width == 2 ? 60000 : 1000000));
}

static void
make_llmc(uint32_t magic, uint32_t version, uint32_t count, int width)
{
    little(magic, 4);
    little(version, 4);
    little(count, 4);
    for (int i = 3; i < 256; i++)
        little(0, 4);
    for (size_t i = 0; i < TOKENS; i++)
        little(token(i, width), width);
}

/* ---- tokens ----------------------------------------------------------------- */

static void
check_samples(int width)
{
    int32_t x[CONTEXT], y[CONTEXT];
    size_t start[] = {0, TOKENS - HELD_OUT};
    size_t length[] = {TOKENS - HELD_OUT, HELD_OUT};
    uint32_t largest = 0;
    for (size_t i = 0; i < TOKENS; i++)
        largest = token(i, width) > largest ? token(i, width) : largest;
    ck_assert_uint_eq(fsdp_dataset_classes(data), largest + 1);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(fsdp_dataset_size(data, (fsdp_split_t)s),
                          length[s] - CONTEXT);
        for (size_t n = 0; n < length[s] - CONTEXT; n++) {
            fsdp_dataset_text_sample(data, (fsdp_split_t)s, n, x, y);
            for (size_t i = 0; i < CONTEXT; i++) {
                ck_assert_int_eq(x[i], (int)token(start[s] + n + i, width));
                ck_assert_int_eq(y[i], (int)token(start[s] + n + i + 1, width));
            }
        }
    }
}

START_TEST(as_llmc_writes_them)
{
    static const struct {
        uint32_t magic, version;
        int width;
    } kind[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    for (int k = 0; k < 2; k++) {
        make_llmc(kind[k].magic, kind[k].version, TOKENS, kind[k].width);
        put(path, used);
        ck_assert(fsdp_data_detect(path) == FSDP_DATA_LLMC);
        ck_assert_msg(fsdp_dataset_open_tokens(path, FSDP_DATA_LLMC, CONTEXT,
                                               &data) == FSDP_OK,
                      "%s", fsdp_error_message());
        check_samples(kind[k].width);
        fsdp_dataset_close(&data);
    }
}
END_TEST

START_TEST(as_nanogpt_writes_them)
{
    for (size_t i = 0; i < TOKENS; i++)
        little(token(i, 2), 2);
    put(path, used);
    ck_assert(fsdp_data_detect(path) == FSDP_DATA_PLAIN);
    ck_assert(fsdp_dataset_open_tokens(path, FSDP_DATA_NANOGPT, CONTEXT,
                                       &data) == FSDP_OK);
    check_samples(2);
}
END_TEST

/* What is written are the bytes above. */
START_TEST(written)
{
    int32_t tokens[TOKENS];
    static unsigned char read[ROOM];
    for (int width = 2; width <= 4; width += 2)
        for (int llmc = width == 4; llmc < 2; llmc++) {
            fsdp_data_format_t format =
                llmc ? FSDP_DATA_LLMC : FSDP_DATA_NANOGPT;
            for (size_t i = 0; i < TOKENS; i++)
                tokens[i] = (int32_t)token(i, width);
            used = 0;
            make_llmc(width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7,
                      TOKENS, width);
            size_t skip = llmc ? 0 : 1024;
            ck_assert(fsdp_data_write_tokens(path, format, tokens, TOKENS) ==
                      FSDP_OK);
            FILE *file = fopen(path, "rb");
            ck_assert_uint_eq(fread(read, 1, ROOM, file), used - skip);
            fclose(file);
            ck_assert_mem_eq(read, bytes + skip, used - skip);
        }
    ck_assert(fsdp_data_write_tokens(path, FSDP_DATA_NANOGPT, tokens, TOKENS) ==
              FSDP_ERR_INPUT);
}
END_TEST

static void
refused(fsdp_data_format_t format, size_t length, const char *word)
{
    put(path, length);
    ck_assert(fsdp_dataset_open_tokens(path, format, CONTEXT, &data) ==
              FSDP_ERR_INPUT);
    ck_assert(data == NULL);
    ck_assert_msg(strstr(fsdp_error_message(), word) != NULL &&
                      strstr(fsdp_error_message(), path) != NULL,
                  "not \"%s\": %s", word, fsdp_error_message());
}

START_TEST(tokens_that_are_refused)
{
    static const struct {
        uint32_t magic, version, count;
        const char *word;
    } header[] = {{20240520, 2, TOKENS, "version"},
                  {20240801, 1, TOKENS, "version"},
                  {20240521, 1, TOKENS, "magic"},
                  {20240520, 1, TOKENS - 1, "number of tokens"},
                  {20240520, 1, TOKENS + 1, "number of tokens"},
                  {20240520, 1, 0xffffffff, "number of tokens"},
                  {20240520, 1, 0x7fffffff, "number of tokens"}};
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        make_llmc(header[i].magic, header[i].version, header[i].count, 2);
        refused(FSDP_DATA_LLMC, used, header[i].word);
    }
    for (size_t end = 1; end < 1024 + 2 * TOKENS; end += 61) {
        make_llmc(20240520, 1, TOKENS, 2);
        refused(FSDP_DATA_LLMC, end, end < 1024 ? "header" : "number");
    }
    make_llmc(20240801, 7, TOKENS, 4);
    memset(bytes + used - 4, 0xff, 4);
    refused(FSDP_DATA_LLMC, used, "token 4294967295");
    refused(FSDP_DATA_NANOGPT, 401, "odd number");
    refused(FSDP_DATA_NANOGPT, 40, "too short");
}
END_TEST

/* ---- images ------------------------------------------------------------------- */

enum { ROWS = 50, HIGH = 3, WIDE = 2, PIXELS = HIGH * WIDE };

static unsigned char
pixel(size_t row, size_t i)
{
    return (unsigned char)((row * 13 + i * 5) % 201);
}

static void
put_labels(const char *name, uint32_t magic, uint32_t count)
{
    big(magic);
    big(count);
    for (size_t r = 0; r < ROWS; r++)
        bytes[used++] = (unsigned char)(r % 10);
    put(name, used);
}

static void
make_images(uint32_t magic, uint32_t rows, uint32_t high, uint32_t wide)
{
    big(magic);
    big(rows);
    big(high);
    big(wide);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < PIXELS; i++)
            bytes[used++] = pixel(r, i);
}

/* Every row is in one of the splits, once, scaled by the training split's largest
 * byte. */
static void
check_rows(void)
{
    double row[PIXELS], largest = 0;
    int32_t label;
    bool seen[ROWS] = {false};
    ck_assert_uint_eq(fsdp_dataset_features(data), PIXELS);
    ck_assert_uint_eq(fsdp_dataset_classes(data), 10);
    ck_assert_uint_eq(fsdp_dataset_size(data, FSDP_TRAIN) +
                          fsdp_dataset_size(data, FSDP_VALIDATION),
                      ROWS);
    for (int s = 0; s < 2; s++)
        for (size_t n = 0; n < fsdp_dataset_size(data, (fsdp_split_t)s); n++) {
            fsdp_dataset_csv_sample(data, (fsdp_split_t)s, n, row, &label);
            size_t r = 0;
            for (; r < ROWS; r++) { /* which is it? rows are all different */
                bool same = (int32_t)(r % 10) == label;
                for (size_t i = 0; i < PIXELS; i++)
                    same = same && lround(row[i] * 200) == pixel(r, i);
                if (same)
                    break;
            }
            ck_assert_msg(r < ROWS && !seen[r], "a row of no image");
            seen[r] = true;
            for (size_t i = 0; s == 0 && i < PIXELS; i++)
                largest = row[i] > largest ? row[i] : largest;
        }
    ck_assert(largest == 1);
}

START_TEST(as_mnist)
{
    make_images(0x803, ROWS, HIGH, WIDE);
    put(images, used);
    put_labels(labels, 0x801, ROWS);
    ck_assert(fsdp_data_detect(images) == FSDP_DATA_IDX);
    ck_assert_msg(fsdp_dataset_open_idx(images, NULL, &data) == FSDP_OK, "%s",
                  fsdp_error_message());
    check_rows();
    fsdp_dataset_close(&data);
    put_labels(path, 0x801, ROWS);
    ck_assert(fsdp_dataset_open_idx(images, path, &data) == FSDP_OK);
    check_rows();
}
END_TEST

static void
images_refused(size_t length, const char *word)
{
    put(images, length);
    put_labels(labels, 0x801, ROWS);
    fsdp_status_t status = fsdp_dataset_open_idx(images, NULL, &data);
    ck_assert(status == FSDP_ERR_INPUT && data == NULL);
    ck_assert_msg(strstr(fsdp_error_message(), word) != NULL, "not \"%s\": %s",
                  word, fsdp_error_message());
}

START_TEST(images_that_are_refused)
{
    static const struct {
        uint32_t magic, rows, high, wide;
        const char *word;
    } header[] = {
        {0x803, ROWS, HIGH, WIDE + 1, "number of bytes"},
        {0x803, 0xffffffff, 0xffffffff, 0xffffffff, ""},
        {0x803, 0x80000000, 0x80000000, 4, "number of bytes"},
        {0x803, 0, 0, 0, "number of bytes"},
        {0x903, ROWS, HIGH, WIDE, "no bytes"},
        {0xd03, ROWS, HIGH, WIDE, "no bytes"},
        {0x8ff, ROWS, HIGH, WIDE, "does not begin"},
        {0x800, ROWS, HIGH, WIDE, "does not begin"},
        {0x10803, ROWS, HIGH, WIDE, "does not begin"},
        {0x1f8b0800, ROWS, HIGH, WIDE, "gunzip"},
    };
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        make_images(header[i].magic, header[i].rows, header[i].high,
                    header[i].wide);
        images_refused(used, header[i].word);
    }
    for (size_t end = 1; end < 16 + ROWS * PIXELS; end += 23) {
        make_images(0x803, ROWS, HIGH, WIDE);
        images_refused(end, "images-idx3");
    }
}
END_TEST

START_TEST(labels_that_are_refused)
{
    make_images(0x803, ROWS, HIGH, WIDE);
    put(images, used);
    put_labels(labels, 0x801, ROWS + 1);
    ck_assert(fsdp_dataset_open_idx(images, NULL, &data) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "labels-idx1") != NULL);
    ck_assert(fsdp_dataset_open_idx(images, images, &data) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "one dimension") != NULL);
    unlink(labels);
    ck_assert(fsdp_dataset_open_idx(images, NULL, &data) == FSDP_ERR_INPUT);
    make_images(0x803, ROWS, HIGH, WIDE);
    put(path, used);
    ck_assert(fsdp_dataset_open_idx(path, NULL, &data) == FSDP_ERR_USAGE);
    ck_assert(strstr(fsdp_error_message(), "--labels") != NULL);
}
END_TEST

int
main(int argc, char **argv)
{
    TCase *tc = tcase_create("tokens");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, as_llmc_writes_them);
    tcase_add_test(tc, as_nanogpt_writes_them);
    tcase_add_test(tc, written);
    tcase_add_test(tc, tokens_that_are_refused);
    tcase_add_test(tc, as_mnist);
    tcase_add_test(tc, images_that_are_refused);
    tcase_add_test(tc, labels_that_are_refused);
    Suite *suite = suite_create("tokens");
    suite_add_tcase(suite, tc);
    return mck_run(argc, argv, suite);
}
