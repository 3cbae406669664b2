/* The counted memory: what is counted, what is kept, and what is found out. */
/* Ranks: 1 */
#include "serial.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

START_TEST(blocks_are_aligned_and_apart)
{
    enum { N = 3000 };
    static unsigned char *block[N];
    for (int i = 0; i < N; i++) {
        block[i] = fsdp_alloc(FSDP_MEM_OTHER, (size_t)i);
        ck_assert((uintptr_t)block[i] % 64 == 0);
        memset(block[i], i % 251, (size_t)i);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++)
            ck_assert(block[i][j] == i % 251);
    for (int i = 0; i < N; i++)
        fsdp_free(block[i]);
    fsdp_free(NULL);
}
END_TEST

START_TEST(bytes_are_counted_as_asked_for)
{
    fsdp_memory_reset_peaks();
    ck_assert_uint_eq(fsdp_memory_live_bytes_all(), 0);
    ck_assert_uint_eq(fsdp_memory_peak_bytes_all(), 0);

    void *a = fsdp_alloc(FSDP_MEM_COMM, 1001);
    void *b = fsdp_calloc(FSDP_MEM_ACTIVATION, 77);
    void *c = fsdp_alloc(FSDP_MEM_COMM, 0);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_COMM), 1001);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION), 77);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_OTHER), 0);
    ck_assert_uint_eq(fsdp_memory_live_bytes_all(), 1078);
    ck_assert_int_eq(fsdp_memory_live_blocks(), 3);

    fsdp_free(a);
    void *d = fsdp_alloc(FSDP_MEM_ACTIVATION, 500);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_COMM), 0);
    ck_assert_uint_eq(fsdp_memory_peak_bytes(FSDP_MEM_COMM), 1001);
    ck_assert_uint_eq(fsdp_memory_peak_bytes(FSDP_MEM_ACTIVATION), 577);
    /* The peak of the sum, not the sum of the peaks. */
    ck_assert_uint_eq(fsdp_memory_peak_bytes_all(), 1078);

    fsdp_memory_reset_peaks();
    ck_assert_uint_eq(fsdp_memory_peak_bytes(FSDP_MEM_COMM), 0);
    ck_assert_uint_eq(fsdp_memory_peak_bytes_all(), 577);
    fsdp_free(b);
    fsdp_free(c);
    fsdp_free(d);
    ck_assert_uint_eq(fsdp_memory_live_bytes_all(), 0);
    ck_assert_int_eq(fsdp_memory_live_blocks(), 0);
}
END_TEST

START_TEST(categories_have_their_keys)
{
    ck_assert_str_eq(fsdp_memory_category_name(FSDP_MEM_PARAM_SHARD),
                     "parameter_shards");
    ck_assert_str_eq(fsdp_memory_category_name(FSDP_MEM_OTHER), "other");
}
END_TEST

START_TEST(calloc_clears_a_used_block)
{
    unsigned char *dirty = fsdp_alloc(FSDP_MEM_OTHER, 5000);
    memset(dirty, 0x5a, 5000);
    fsdp_free(dirty);
    unsigned char *clean = fsdp_calloc(FSDP_MEM_OTHER, 5000);
    for (int i = 0; i < 5000; i++)
        ck_assert(clean[i] == 0);
    fsdp_free(clean);
}
END_TEST

START_TEST(strings_are_copied_and_formatted)
{
    char text[] = "h.0.attn";
    char *copy = fsdp_strdup(text);
    text[0] = 'x';
    ck_assert_str_eq(copy, "h.0.attn");
    char *made = fsdp_format("%s[%05d]", copy, 42);
    ck_assert_str_eq(made, "h.0.attn[00042]");
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_OTHER), 9 + 16);
    fsdp_free(copy);
    fsdp_free(made);
}
END_TEST

/* One step of a training: activations that live together, buffers that come and
 * go, sizes of all kinds. */
static void
one_step(void)
{
    void *kept[40];
    for (size_t i = 0; i < 40; i++) {
        kept[i] = fsdp_alloc(FSDP_MEM_ACTIVATION, 37 * i * i * i + i);
        fsdp_free(fsdp_alloc(FSDP_MEM_COMM, 100000 + 977 * i));
    }
    for (size_t i = 40; i-- > 0;)
        fsdp_free(kept[i]);
}

START_TEST(second_step_asks_the_system_for_nothing)
{
    one_step();
    long requests = fsdp_memory_system_requests();
    for (int i = 0; i < 10; i++)
        one_step();
    long more = fsdp_memory_system_requests() - requests;
    ck_assert_int_eq(more, serial_has_sanitizer() ? 800 : 0);

    fsdp_memory_trim();
    one_step();
    ck_assert_int_gt(fsdp_memory_system_requests(), requests + more);
}
END_TEST

/* The least class that holds `bytes`, which wastes at most an eighth. */
static void
check_class(size_t bytes)
{
    int size_class = fsdp_pool_class(bytes);
    size_t held = fsdp_pool_class_bytes(size_class);
    ck_assert_msg(held >= bytes && held % 64 == 0, "%zu in %zu", bytes, held);
    ck_assert(size_class == 0 || fsdp_pool_class_bytes(size_class - 1) < bytes);
    ck_assert(held - bytes <= 64 || held - bytes <= bytes / 8);
}

START_TEST(size_classes_fit)
{
    for (size_t bytes = 0; bytes < 100000; bytes++)
        check_class(bytes);
    for (int log2 = 17; log2 < 47; log2++)
        for (size_t eighth = 8; eighth < 16; eighth++)
            for (size_t i = 0; i < 5; i++)
                check_class((eighth << (log2 - 3)) + i - 2);
}
END_TEST

static void *
counts_as_other(void *unused)
{
    (void)unused;
    void *block = fsdp_alloc(FSDP_MEM_COMM, 64);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_COMM), 64);
    fsdp_free(block);
    return NULL;
}

START_TEST(override_is_for_one_thread)
{
    pthread_t thread;
    ck_assert(fsdp_memory_override(FSDP_MEM_BASELINE) == FSDP_MEM_COUNT);
    void *a = fsdp_alloc(FSDP_MEM_PARAM_SHARD, 100);
    ck_assert(fsdp_memory_override(FSDP_MEM_OPTIMIZER) == FSDP_MEM_BASELINE);
    void *b = fsdp_alloc(FSDP_MEM_PARAM_SHARD, 10);
    ck_assert(pthread_create(&thread, NULL, counts_as_other, NULL) == 0);
    ck_assert(pthread_join(thread, NULL) == 0);
    ck_assert(fsdp_memory_override(FSDP_MEM_COUNT) == FSDP_MEM_OPTIMIZER);
    void *c = fsdp_alloc(FSDP_MEM_PARAM_SHARD, 1);

    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_BASELINE), 100);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_OPTIMIZER), 10);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD), 1);
    fsdp_free(a);
    fsdp_free(b);
    fsdp_free(c);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_BASELINE), 0);
}
END_TEST

/* Blocks of its own value, freed in another order; the number of bytes that
 * were not its own. */
static void *
churn(void *argument)
{
    unsigned char value = *(unsigned char *)argument;
    unsigned char *block[16] = {NULL};
    size_t size[16] = {0}, foreign = 0;
    unsigned state = value;
    for (int i = 0; i < 20000; i++) {
        state = state * 1664525u + 1013904223u;
        size_t k = state >> 28;
        for (size_t j = 0; j < size[k]; j++)
            foreign += block[k][j] != value;
        fsdp_free(block[k]);
        size[k] = state >> 8 & 0x1ff;
        block[k] = fsdp_alloc(FSDP_MEM_OTHER, size[k]);
        memset(block[k], value, size[k]);
    }
    for (int k = 0; k < 16; k++)
        fsdp_free(block[k]);
    return (void *)foreign;
}

START_TEST(threads_share_the_pool)
{
    pthread_t thread[4];
    unsigned char value[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        ck_assert(pthread_create(&thread[i], NULL, churn, &value[i]) == 0);
    for (int i = 0; i < 4; i++) {
        void *foreign;
        ck_assert(pthread_join(thread[i], &foreign) == 0);
        ck_assert(foreign == NULL);
    }
    ck_assert_uint_eq(fsdp_memory_live_bytes_all(), 0);
    ck_assert_int_eq(fsdp_memory_live_blocks(), 0);
}
END_TEST

/* Mistakes, each in a process of its own. */

static void
free_twice(void)
{
    void *block = fsdp_alloc(FSDP_MEM_OTHER, 100);
    fsdp_free(block);
    fsdp_free(block);
}

static void
free_foreign(void)
{
    static _Alignas(64) unsigned char foreign[256];
    fsdp_free(foreign + 64);
}

static void
free_inside(void)
{
    unsigned char *block = fsdp_alloc(FSDP_MEM_OTHER, 100);
    fsdp_free(block + 16);
}

static void
write_before(void)
{
    unsigned char *block = fsdp_alloc(FSDP_MEM_OTHER, 100);
    memset(block - 64, 7, 64);
    fsdp_free(block);
}

static void
write_behind(void)
{
    volatile unsigned char *block = fsdp_alloc(FSDP_MEM_OTHER, 100);
    block[100] = 7;
    fsdp_free((void *)block);
}

static void
ask_for_too_much(void)
{
    void *small = fsdp_alloc(FSDP_MEM_OTHER, 1234);
    (void)small;
    fsdp_alloc(FSDP_MEM_ACTIVATION, (size_t)-5);
}

static void
ask_for_all(void)
{
    fsdp_alloc(FSDP_MEM_ACTIVATION, (size_t)1 << 46);
}

static void
ask_for_no_category(void)
{
    fsdp_alloc(FSDP_MEM_COUNT, 1);
}

/* `ours`: our own check sees it also where a sanitizer looks on. */
static void
check_dies(void (*body)(void), const char *says, bool ours)
{
    ending_t e = serial_ending_of(body);
    ck_assert_int_ne(e.status, 0);
    if (serial_has_sanitizer() && !ours)
        return;
    ck_assert_int_eq(e.status, FSDP_EXIT_FAULT);
    ck_assert_msg(strstr(e.said, says) != NULL, "%s", e.said);
    ck_assert_int_eq(e.writes, 1);
}

START_TEST(mistakes_are_found)
{
    check_dies(free_twice, "it was freed before", false);
    check_dies(free_foreign, "it is no block of fsdp_alloc()", true);
    check_dies(free_inside, "it is no block of fsdp_alloc()", true);
    check_dies(write_before, "was written before its beginning", true);
    check_dies(write_behind, "it was written past its end", false);
    check_dies(ask_for_no_category, "is no category of memory", true);
}
END_TEST

START_TEST(no_memory_says_how_much)
{
    check_dies(ask_for_too_much,
               "out of memory: 18446744073709551611 bytes asked for "
               "(activations), 1234 bytes in use",
               true);
    check_dies(ask_for_all, "out of memory: 70368744177664 bytes asked for",
               false);
}
END_TEST

/* FSDP_DEBUG_MEMORY is read once, so it is tried in a program of its own, which
 * is this one again. */
static void
run_debug_child(void)
{
    setenv("FSDP_DEBUG_MEMORY", "1", 1);
    execl("/proc/self/exe", "test_memory", "debug", (char *)NULL);
}

static bool
all_nan(const volatile float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isnan(x[i]))
            return false;
    return true;
}

static int
debug_child(void)
{
    float *x = fsdp_alloc(FSDP_MEM_OTHER, 1000 * sizeof *x);
    bool fresh = all_nan(x, 1000);
    memset(x, 0, 1000 * sizeof *x);
    fsdp_free(x);
    /* The block waits for its next use, unless a sanitizer took it. */
    bool freed = serial_has_sanitizer() || all_nan(x, 1000);
    int *zero = fsdp_calloc(FSDP_MEM_OTHER, sizeof *zero);
    bool cleared = *zero == 0;
    fsdp_free(zero);
    return 10 + fresh + 2 * freed + 4 * cleared;
}

START_TEST(debug_fills_blocks)
{
    unsetenv("FSDP_DEBUG_MEMORY");
    ck_assert_int_eq(serial_ending_of(run_debug_child).status, 10 + 7);
}
END_TEST

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "debug") == 0)
        return debug_child();
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, blocks_are_aligned_and_apart);
    tcase_add_test(tcase, bytes_are_counted_as_asked_for);
    tcase_add_test(tcase, categories_have_their_keys);
    tcase_add_test(tcase, calloc_clears_a_used_block);
    tcase_add_test(tcase, strings_are_copied_and_formatted);
    tcase_add_test(tcase, second_step_asks_the_system_for_nothing);
    tcase_add_test(tcase, size_classes_fit);
    tcase_add_test(tcase, override_is_for_one_thread);
    tcase_add_test(tcase, threads_share_the_pool);
    tcase_add_test(tcase, mistakes_are_found);
    tcase_add_test(tcase, no_memory_says_how_much);
    tcase_add_test(tcase, debug_fills_blocks);
    return serial_run(suite);
}
