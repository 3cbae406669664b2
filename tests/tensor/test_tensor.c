/* Ranks: 1 */
/* Tensors: shapes, views, storage and its life, single elements. */
#include "mck.h"

#include <math.h>
#include <string.h>

#include "fsdp/tensor.h"

#define SHAPE(...)                                                             \
    (const size_t[])                                                           \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

static fsdp_tensor_t *
make(fsdp_dtype_t dtype, int ndim, const size_t *shape)
{
    return fsdp_tensor_create(FSDP_MEM_ACTIVATION, dtype, ndim, shape);
}

START_TEST(shapes)
{
    struct {
        int ndim;
        size_t shape[4], numel, row_numel;
        const char *text;
    } cases[] = {
        {0, {0}, 1, 1, "[]"},
        {1, {5}, 5, 1, "[5]"},
        {2, {50257, 768}, 50257 * 768, 768, "[50257, 768]"},
        {2, {0, 7}, 0, 7, "[0, 7]"},
        {3, {3, 0, 2}, 0, 0, "[3, 0, 2]"},
        {4, {2, 3, 4, 5}, 120, 60, "[2, 3, 4, 5]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64], small[6];
        fsdp_tensor_t *t =
            fsdp_tensor_borrow(FSDP_BF16, cases[i].ndim, cases[i].shape, text);
        ck_assert_uint_eq(fsdp_tensor_numel(t), cases[i].numel);
        ck_assert_uint_eq(fsdp_tensor_bytes(t), 2 * cases[i].numel);
        ck_assert_uint_eq(fsdp_tensor_row_numel(t), cases[i].row_numel);
        fsdp_tensor_format_shape(t, text, sizeof text);
        ck_assert_str_eq(text, cases[i].text);
        fsdp_tensor_format_shape(t, small, sizeof small);
        ck_assert_int_eq(strncmp(small, cases[i].text, 5), 0);
        ck_assert(strlen(small) <= 5);
        fsdp_tensor_destroy(&t);
    }
}
END_TEST

START_TEST(same_shape)
{
    fsdp_tensor_t *a = fsdp_tensor_borrow(FSDP_FP32, 2, SHAPE(2, 3), NULL);
    fsdp_tensor_t *b = fsdp_tensor_borrow(FSDP_FP64, 2, SHAPE(2, 3), NULL);
    fsdp_tensor_t *c = fsdp_tensor_borrow(FSDP_FP32, 2, SHAPE(3, 2), NULL);
    fsdp_tensor_t *d = fsdp_tensor_borrow(FSDP_FP32, 1, SHAPE(6), NULL);
    ck_assert(fsdp_tensor_same_shape(a, b));
    ck_assert(!fsdp_tensor_same_shape(a, c));
    ck_assert(!fsdp_tensor_same_shape(a, d));
    fsdp_tensor_destroy(&a);
    fsdp_tensor_destroy(&b);
    fsdp_tensor_destroy(&c);
    fsdp_tensor_destroy(&d);
    ck_assert_ptr_null(a);
    fsdp_tensor_destroy(&a); /* nothing */
}
END_TEST

/* The storage lives until its last user goes, and counts in its category. */
START_TEST(life_of_storage)
{
    size_t before = fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION);
    fsdp_tensor_t *t = make(FSDP_FP32, 2, SHAPE(4, 3));
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION), before + 48);
    ck_assert_uint_eq((size_t)t->data % 64, 0);
    for (size_t i = 0; i < 12; i++)
        fsdp_tensor_set(t, i, (double)i);
    fsdp_tensor_t *rows = fsdp_tensor_rows(t, 1, 3);
    fsdp_tensor_t *view = fsdp_tensor_view(rows, 2, 2, SHAPE(2, 2));
    fsdp_tensor_destroy(&t);
    fsdp_tensor_release(rows);
    ck_assert_ptr_null(rows->data);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION), before + 48);
    for (size_t i = 0; i < 4; i++)
        ck_assert(fsdp_tensor_get(view, i) == (double)(i + 5));
    fsdp_tensor_release(view);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION), before);
    fsdp_tensor_release(view); /* nothing more */
    fsdp_tensor_destroy(&rows);
    fsdp_tensor_destroy(&view);
}
END_TEST

START_TEST(rows_of_a_tensor)
{
    fsdp_tensor_t *t = make(FSDP_FP64, 3, SHAPE(5, 2, 3));
    for (size_t i = 0; i < 30; i++)
        fsdp_tensor_set(t, i, (double)i);
    fsdp_tensor_t *middle = fsdp_tensor_rows(t, 2, 4);
    fsdp_tensor_t *none = fsdp_tensor_rows(t, 5, 5);
    ck_assert_int_eq(middle->ndim, 3);
    ck_assert_uint_eq(middle->shape[0], 2);
    ck_assert_uint_eq(middle->shape[2], 3);
    ck_assert(fsdp_tensor_get(middle, 0) == 12);
    ck_assert(fsdp_tensor_get(middle, 11) == 23);
    ck_assert_uint_eq(fsdp_tensor_numel(none), 0);
    ck_assert_uint_eq(fsdp_tensor_row_numel(none), 6);
    fsdp_tensor_destroy(&t);
    fsdp_tensor_destroy(&middle);
    fsdp_tensor_destroy(&none);
}
END_TEST

START_TEST(borrowed_and_cloned)
{
    float memory[6] = {1, 2, 3, 4, 5, 6};
    fsdp_tensor_t *t = fsdp_tensor_borrow(FSDP_FP32, 2, SHAPE(3, 2), memory);
    fsdp_tensor_t *view = fsdp_tensor_rows(t, 1, 2);
    fsdp_tensor_t *clone = fsdp_tensor_clone(FSDP_MEM_OTHER, view);
    fsdp_tensor_destroy(&t);
    memory[2] = 30;
    ck_assert(fsdp_tensor_get(view, 0) == 30);
    ck_assert(fsdp_tensor_get(clone, 0) == 3);
    ck_assert(fsdp_tensor_get(clone, 1) == 4);
    ck_assert_uint_eq(clone->shape[1], 2);
    fsdp_tensor_zero(view);
    ck_assert(memory[1] == 2 && memory[2] == 0 && memory[3] == 0 &&
              memory[4] == 5);
    fsdp_tensor_destroy(&view);
    fsdp_tensor_destroy(&clone);
}
END_TEST

/* One element of each type: what goes in, what comes out. */
START_TEST(elements)
{
    struct {
        fsdp_dtype_t dtype;
        double in, out;
    } cases[] = {
        {FSDP_FP32, 0.1, (double)0.1f},
        {FSDP_FP64, 0.1, 0.1},
        {FSDP_BF16, 1 + 0x1p-8, 1},
        {FSDP_BF16, 1 + 3 * 0x1p-8, 1 + 0x1p-6},
        {FSDP_FP16, 65519, 65504},
        {FSDP_FP16, 65520, INFINITY},
        {FSDP_INT32, -2147483648.0, -2147483648.0},
        {FSDP_INT32, 2.5, 2},
        {FSDP_INT64, 0x1p53, 0x1p53},
        {FSDP_INT64, -0x1p63, -0x1p63},
        {FSDP_UINT8, 254.9, 255},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_tensor_t *t = make(cases[i].dtype, 1, SHAPE(3));
        fsdp_tensor_zero(t);
        fsdp_tensor_set(t, 1, cases[i].in);
        ck_assert(fsdp_tensor_get(t, 0) == 0);
        ck_assert(fsdp_tensor_get(t, 1) == cases[i].out);
        ck_assert(fsdp_tensor_get(t, 2) == 0);
        fsdp_tensor_destroy(&t);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("tensor");
    TCase *tcase = tcase_create("tensor");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, shapes);
    tcase_add_test(tcase, same_shape);
    tcase_add_test(tcase, life_of_storage);
    tcase_add_test(tcase, rows_of_a_tensor);
    tcase_add_test(tcase, borrowed_and_cloned);
    tcase_add_test(tcase, elements);
    return mck_run(argc, argv, suite);
}
