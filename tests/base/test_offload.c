/* Blocks that live in files: what they hold, what of them is resident, what is
 * left of them, and what is said when there is no room. */
/* Ranks: 1 */
#include "serial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/offload_file.h"
#include "fsdp/offload.h"

enum { PAGE = 4096, PIECE = FSDP_OFFLOAD_PIECE_BYTES };

static char directory[] = "offload-XXXXXX";

static fsdp_offload_t *
opened(void)
{
    fsdp_offload_t *store;
    fsdp_status_t status = fsdp_offload_open(directory, &store);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    return store;
}

static int
entries(void)
{
    int count = 0;
    DIR *d = opendir(directory);
    while (readdir(d) != NULL)
        count++;
    closedir(d);
    return count - 2; /* . and .. */
}

/* Bytes of files and shared memory that are resident in this process. */
static size_t
resident(void)
{
    char line[256];
    size_t sum = 0, kb;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "RssFile: %zu", &kb) == 1 ||
            sscanf(line, "RssShmem: %zu", &kb) == 1)
            sum += kb * 1024;
    fclose(f);
    return sum;
}

static bool
all_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static unsigned char
expected(size_t block, size_t i)
{
    return (unsigned char)((block + 1) * 31 + i * 7 + i / 251);
}

/* ---- what a block holds -------------------------------------------------- */

START_TEST(blocks_keep_what_was_written)
{
    static const size_t bytes[] = {0, 1, PAGE - 1, PAGE, 3 * PAGE + 5, 100000};
    enum { N = sizeof bytes / sizeof *bytes };
    unsigned char *block[N];
    fsdp_offload_t *store = opened();
    for (size_t b = 0; b < N; b++) {
        block[b] = fsdp_offload_calloc(store, FSDP_MEM_OPTIMIZER, bytes[b]);
        ck_assert_uint_eq((uintptr_t)block[b] % PAGE, 0);
        ck_assert(all_zero(block[b], bytes[b]));
        for (size_t i = 0; i < bytes[b]; i++)
            block[b][i] = expected(b, i);
    }
    for (size_t b = 0; b < N; b++) {
        fsdp_offload_release(block[b], bytes[b]);
        fsdp_offload_prefetch(block[b] + bytes[b] / 2, bytes[b] / 3);
        fsdp_offload_release(block[b] + bytes[b] / 3, bytes[b]);
    }
    for (size_t b = 0; b < N; b++)
        for (size_t i = 0; i < bytes[b]; i++)
            ck_assert(block[b][i] == expected(b, i));
    for (size_t b = 0; b < N; b++)
        fsdp_offload_free(block[b]);
    fsdp_offload_close(&store);
    ck_assert_ptr_null(store);
}
END_TEST

/* A place in the file that was used before is zeros for its next user, also
 * after its pages were written to the disk. */
START_TEST(used_places_are_zeros_again)
{
    enum { BYTES = 5 * PAGE + 17 };
    fsdp_offload_t *store = opened();
    for (int round = 0; round < 4; round++) {
        unsigned char *a = fsdp_offload_calloc(store, FSDP_MEM_OTHER, BYTES);
        unsigned char *b = fsdp_offload_calloc(store, FSDP_MEM_OTHER, BYTES);
        ck_assert(all_zero(a, BYTES) && all_zero(b, BYTES));
        memset(a, 0xa5, BYTES);
        memset(b, 0x5a, BYTES);
        if (round % 2 == 0)
            ck_assert_int_eq(msync(a, BYTES, MS_SYNC), 0);
        fsdp_offload_release(a, BYTES);
        fsdp_offload_free(round < 2 ? a : b);
        fsdp_offload_free(round < 2 ? b : a);
    }
    fsdp_offload_close(&store);
}
END_TEST

/* ---- where a block lives ------------------------------------------------- */

START_TEST(addresses_know_their_file)
{
    fsdp_offload_t *store = opened();
    char *file = fsdp_offload_calloc(store, FSDP_MEM_OTHER, 2 * PAGE);
    char *memory = fsdp_offload_calloc(NULL, FSDP_MEM_OTHER, 2 * PAGE);
    ck_assert_str_eq(fsdp_offload_directory(store), directory);
    ck_assert_ptr_eq(fsdp_offload_of(file), store);
    ck_assert_ptr_eq(fsdp_offload_of(file + 2 * PAGE - 1), store);
    ck_assert_ptr_null(fsdp_offload_of(memory));
    ck_assert_ptr_null(fsdp_offload_of(&store));
    ck_assert_ptr_null(fsdp_offload_of(NULL));
    /* Other memory is left alone. */
    memset(memory, 7, 2 * PAGE);
    fsdp_offload_prefetch(memory, 2 * PAGE);
    fsdp_offload_release(memory, 2 * PAGE);
    for (int i = 0; i < 2 * PAGE; i++)
        ck_assert_int_eq(memory[i], 7);
    fsdp_offload_free(memory);
    fsdp_offload_free(file);
    ck_assert_ptr_null(fsdp_offload_of(file));
    fsdp_offload_free(NULL);
    fsdp_offload_close(&store);
}
END_TEST

START_TEST(one_directory_is_one_file)
{
    fsdp_offload_t *a = opened(), *b = opened(), *none = NULL;
    ck_assert_ptr_eq(a, b);
    char *block = fsdp_offload_calloc(a, FSDP_MEM_OTHER, 10);
    fsdp_offload_close(&a);
    fsdp_offload_close(&b);
    fsdp_offload_close(&none);
    block[9] = 3; /* outlives those who opened the file */
    fsdp_offload_release(block, 10);
    ck_assert_int_eq(block[9], 3);
    fsdp_offload_free(block);
    ck_assert_int_eq(fsdp_memory_live_blocks(), 0);
}
END_TEST

START_TEST(files_are_counted_apart)
{
    fsdp_offload_t *store = opened();
    fsdp_memory_reset_peaks();
    long blocks = fsdp_memory_live_blocks();
    void *a = fsdp_offload_calloc(store, FSDP_MEM_PARAM_SHARD, 1001);
    void *b = fsdp_offload_calloc(store, FSDP_MEM_GRAD_SHARD, 77);
    ck_assert_uint_eq(fsdp_offload_live_bytes(FSDP_MEM_PARAM_SHARD), 1001);
    ck_assert_uint_eq(fsdp_offload_live_bytes(FSDP_MEM_GRAD_SHARD), 77);
    ck_assert_uint_eq(fsdp_offload_live_bytes_all(), 1078);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD), 0);
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_GRAD_SHARD), 0);
    ck_assert_int_ge(fsdp_memory_live_blocks(), blocks + 2);
    fsdp_offload_free(a);
    fsdp_memory_override(FSDP_MEM_BASELINE);
    void *c = fsdp_offload_calloc(store, FSDP_MEM_GRAD_SHARD, 500);
    fsdp_memory_override(FSDP_MEM_COUNT);
    ck_assert_uint_eq(fsdp_offload_live_bytes(FSDP_MEM_BASELINE), 500);
    ck_assert_uint_eq(fsdp_offload_live_bytes_all(), 577);
    ck_assert_uint_eq(fsdp_offload_peak_bytes_all(), 1078);
    ck_assert_uint_eq(fsdp_offload_peak_bytes(FSDP_MEM_PARAM_SHARD), 1001);
    fsdp_memory_reset_peaks();
    ck_assert_uint_eq(fsdp_offload_peak_bytes(FSDP_MEM_PARAM_SHARD), 0);
    ck_assert_uint_eq(fsdp_offload_peak_bytes_all(), 577);
    fsdp_offload_free(b);
    fsdp_offload_free(c);
    fsdp_offload_close(&store);
    ck_assert_uint_eq(fsdp_offload_live_bytes_all(), 0);
    ck_assert_int_eq(fsdp_memory_live_blocks(), 0);
}
END_TEST

/* ---- what is resident ---------------------------------------------------- */

/* Sixteen pieces one after the other: never more than the piece in use, and
 * what the system maps around a page that is touched (2 MiB at most: what it
 * keeps together in its cache). */
START_TEST(released_pieces_are_not_resident)
{
    enum { PIECES = 16, AROUND = 2 << 20 };
    fsdp_offload_t *store = opened();
    resident(); /* brings in what it needs itself */
    size_t before = resident();
    unsigned char *block =
        fsdp_offload_calloc(store, FSDP_MEM_OPTIMIZER, PIECES * PIECE);
    for (int pass = 0; pass < 2; pass++)
        for (size_t p = 0; p < PIECES; p++) {
            unsigned char *piece = block + p * PIECE;
            for (size_t i = 0; i < PIECE; i += PAGE) {
                ck_assert(piece[i] == (pass == 0 ? 0 : 1 + p));
                piece[i] = (unsigned char)(1 + p + (unsigned)pass);
            }
            ck_assert_uint_ge(resident(), before + PIECE);
            ck_assert_uint_le(resident(), before + PIECE + AROUND);
            fsdp_offload_release(piece, PIECE);
            ck_assert_uint_le(resident(), before + AROUND);
        }
    for (size_t p = 0; p < PIECES; p++)
        ck_assert(block[p * PIECE] == 2 + p);
    fsdp_offload_free(block);
    fsdp_offload_close(&store);
}
END_TEST

/* Is the page of an address in this process's memory? */
static bool
present(const char *address)
{
    uint64_t entry = 0;
    off_t at = (off_t)((uintptr_t)address / PAGE * sizeof entry);
    int fd = open("/proc/self/pagemap", O_RDONLY);
    ck_assert_int_eq(pread(fd, &entry, sizeof entry, at), sizeof entry);
    close(fd);
    return entry >> 63 != 0;
}

/* A range takes all pages with it that it touches, and no other. */
START_TEST(pages_of_a_range_are_released)
{
    static const struct {
        size_t begin, bytes;
        int first, last;
    } range[] = {{PAGE + 5, 1, 1, 1},    {PAGE - 1, 2, 0, 1},
                 {2 * PAGE, PAGE, 2, 2}, {PAGE, 2 * PAGE + 1, 1, 3},
                 {3 * PAGE, 9999, 3, 3}, {0, 4 * PAGE, 0, 3},
                 {PAGE + 1, PAGE, 1, 2}, {PAGE, 0, 9, 9}};
    fsdp_offload_t *store = opened();
    char *block = fsdp_offload_calloc(store, FSDP_MEM_OTHER, 3 * PAGE + 1);
    char *next = fsdp_offload_calloc(store, FSDP_MEM_OTHER, 1);
    for (size_t r = 0; r < sizeof range / sizeof *range; r++) {
        for (int page = 0; page < 4; page++)
            block[page * PAGE] = 1;
        *next = 1;
        fsdp_offload_release(block + range[r].begin, range[r].bytes);
        for (int page = 0; page < 4; page++)
            ck_assert_msg(present(block + page * PAGE) ==
                              (page < range[r].first || page > range[r].last),
                          "range %zu, page %d", r, page);
        ck_assert(present(next));
    }
    fsdp_offload_free(block);
    fsdp_offload_free(next);
    fsdp_offload_close(&store);
}
END_TEST

typedef struct walk {
    size_t next; /* where the next piece must begin */
    int pieces;
    size_t most; /* of the longest                  */
} walk_t;

static void
take_piece(void *context, size_t begin, size_t count)
{
    walk_t *walk = context;
    ck_assert_uint_eq(begin, walk->next);
    walk->next += count;
    walk->pieces++;
    walk->most = count > walk->most ? count : walk->most;
}

/* One piece in memory; else as few as there can be, none too long. */
START_TEST(pieces_follow_each_other)
{
    size_t lengths[] = {0, 1, PIECE / 8, PIECE / 8 + 1, 5 * (PIECE / 8) - 3};
    fsdp_offload_t *store = opened();
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int mixed = 0; mixed < 2; mixed++) {
            size_t bytes = 8 * lengths[n], each = PIECE / 8;
            void *vector[3] = {fsdp_offload_calloc(NULL, FSDP_MEM_OTHER, bytes),
                               NULL,
                               fsdp_offload_calloc(mixed ? store : NULL,
                                                   FSDP_MEM_OTHER, bytes)};
            walk_t walk = {0, 0, 0};
            fsdp_offload_in_pieces((const void *const *)vector, 3, lengths[n],
                                   8, take_piece, &walk);
            size_t pieces = mixed ? (lengths[n] + each - 1) / each
                                  : (size_t)(lengths[n] > 0);
            ck_assert_uint_eq(walk.next, lengths[n]);
            ck_assert_int_eq(walk.pieces, (int)pieces);
            ck_assert(!mixed || walk.most <= each);
            fsdp_offload_free(vector[0]);
            fsdp_offload_free(vector[2]);
        }
    fsdp_offload_close(&store);
}
END_TEST

/* How many pages of the block the system has in its cache. */
static size_t
cached_pages(void *block, size_t bytes)
{
    unsigned char in[PIECE / PAGE];
    size_t count = 0;
    ck_assert_int_eq(mincore(block, bytes, in), 0);
    for (size_t i = 0; i < bytes / PAGE; i++)
        count += in[i] & 1;
    return count;
}

/* Reading is asked for without touching: pages that the system had thrown out
 * come back by themselves.  Where it does not throw out (a file system in
 * memory) there is nothing to be seen. */
START_TEST(prefetch_reads)
{
    enum { PAGES = PIECE / PAGE };
    fsdp_offload_t *store = opened();
    char *block = fsdp_offload_calloc(store, FSDP_MEM_OPTIMIZER, PIECE);
    memset(block, 9, PIECE);
    ck_assert_int_eq(msync(block, PIECE, MS_SYNC), 0);
    madvise(block, PIECE, MADV_PAGEOUT);
    if (cached_pages(block, PIECE) < PAGES / 2) {
        size_t before = resident();
        fsdp_offload_prefetch(block, PIECE);
        for (int i = 0; i < 500 && cached_pages(block, PIECE) < PAGES; i++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        ck_assert_uint_eq(cached_pages(block, PIECE), PAGES);
        ck_assert_uint_le(resident(), before + (256 << 10));
    }
    fsdp_offload_free(block);
    fsdp_offload_close(&store);
}
END_TEST

/* ---- what is left -------------------------------------------------------- */

/* The other way to have no name. */
START_TEST(a_file_that_loses_its_name)
{
    int fd = fsdp_offload_file_unnamed(directory);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(entries(), 0);
    ck_assert_int_eq(ftruncate(fd, PAGE), 0);
    close(fd);
    ck_assert_int_eq(fsdp_offload_file_unnamed("missing"), -1);
    ck_assert_int_eq(errno, ENOENT);
}
END_TEST

START_TEST(the_directory_stays_empty)
{
    fsdp_offload_t *store = opened();
    void *block = fsdp_offload_calloc(store, FSDP_MEM_OTHER, 10 * PAGE);
    ck_assert_int_eq(entries(), 0);
    fsdp_offload_free(block);
    fsdp_offload_close(&store);
    ck_assert_int_eq(entries(), 0);
}
END_TEST

static void
be_killed(void)
{
    char *block = fsdp_offload_calloc(opened(), FSDP_MEM_OTHER, 10 * PAGE);
    block[PAGE] = 1;
    raise(SIGKILL);
}

START_TEST(a_killed_process_leaves_nothing)
{
    ck_assert_int_eq(serial_ending_of(be_killed).status, 128 + SIGKILL);
    ck_assert_int_eq(entries(), 0);
}
END_TEST

/* Room on the disk that was given back can be had again: a thousand blocks of
 * which no two live at once fit where two do. */
START_TEST(freed_room_is_used_again)
{
    struct rlimit former, two = {2 * PAGE, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &former);
    two.rlim_max = former.rlim_max;
    setrlimit(RLIMIT_FSIZE, &two);
    fsdp_offload_t *store = opened();
    for (int i = 0; i < 1000; i++)
        fsdp_offload_free(fsdp_offload_calloc(store, FSDP_MEM_OTHER, PAGE));
    fsdp_offload_close(&store);
    setrlimit(RLIMIT_FSIZE, &former);
}
END_TEST

/* ---- what cannot be ------------------------------------------------------ */

static void
refused(const char *where, const char *why)
{
    fsdp_offload_t *store = (fsdp_offload_t *)&store;
    ck_assert_int_eq(fsdp_offload_open(where, &store), FSDP_ERR_IO);
    ck_assert_ptr_null(store);
    ck_assert_msg(strstr(fsdp_error_message(), why) != NULL &&
                      strstr(fsdp_error_message(), where) != NULL,
                  "%s", fsdp_error_message());
}

START_TEST(bad_directories)
{
    char file[64], missing[64];
    snprintf(file, sizeof file, "%s/file", directory);
    snprintf(missing, sizeof missing, "%s/missing", directory);
    fclose(fopen(file, "w"));
    refused(missing, "does not exist");
    refused(file, "is no directory");
    refused("/proc", "file system");
    ck_assert_int_eq(unlink(file), 0);
}
END_TEST

static void
open_as_nobody(void)
{
    fsdp_offload_t *store;
    if (geteuid() == 0 && seteuid(65534) != 0)
        _exit(77);
    if (fsdp_offload_open(directory, &store) != FSDP_OK)
        fsdp_die(FSDP_EXIT_USAGE, "%s", fsdp_error_message());
}

START_TEST(a_directory_that_may_not_be_written)
{
    ck_assert_int_eq(chmod(directory, 0555), 0);
    ending_t end = serial_ending_of(open_as_nobody);
    ck_assert_int_eq(chmod(directory, 0700), 0);
    if (end.status == 77)
        return;
    ck_assert_int_eq(end.status, FSDP_EXIT_USAGE);
    ck_assert_msg(strstr(end.said, "not writable") != NULL, "%s", end.said);
}
END_TEST

/* A limit on the size of files stands for a disk of 10 pages. */
static void
ask_for_too_much(void)
{
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){10 * PAGE, 10 * PAGE});
    fsdp_offload_t *store = opened();
    fsdp_offload_calloc(store, FSDP_MEM_OPTIMIZER, 9 * PAGE);
    puts("room");
    fsdp_offload_calloc(store, FSDP_MEM_GRAD_SHARD, PAGE + 1);
    puts("more");
}

/* A disk of 16 pages, where this process may make one. */
static void
fill_a_small_disk(void)
{
    if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", directory, "tmpfs", 0, "size=64k") != 0)
        _exit(77);
    fsdp_offload_t *store = opened();
    fsdp_offload_calloc(store, FSDP_MEM_OPTIMIZER, 9 * PAGE);
    puts("room");
    fsdp_offload_calloc(store, FSDP_MEM_GRAD_SHARD, 8 * PAGE);
    puts("more");
}

static void
said_that_it_is_full(const ending_t *end)
{
    ck_assert_int_eq(end->status, FSDP_EXIT_FAULT);
    ck_assert_str_eq(end->printed, "room\n");
    ck_assert_int_eq(end->writes, 1);
    ck_assert_msg(strstr(end->said, "no room for") != NULL &&
                      strstr(end->said, "gradient_shards") != NULL &&
                      strstr(end->said, directory) != NULL,
                  "%s", end->said);
}

START_TEST(a_full_disk_is_told_at_once)
{
    ending_t end = serial_ending_of(ask_for_too_much);
    said_that_it_is_full(&end);
    end = serial_ending_of(fill_a_small_disk);
    if (end.status != 77)
        said_that_it_is_full(&end);
}
END_TEST

static void
free_the_middle(void)
{
    char *block = fsdp_offload_calloc(opened(), FSDP_MEM_OTHER, 3 * PAGE);
    fsdp_offload_free(block + PAGE);
}

START_TEST(the_middle_of_a_block_is_not_freed)
{
    ending_t end = serial_ending_of(free_the_middle);
    ck_assert_int_eq(end.status, FSDP_EXIT_FAULT);
    ck_assert_msg(strstr(end.said, "inside of the block") != NULL, "%s",
                  end.said);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("offload");
    TCase *tcase = tcase_create("blocks");
    if (mkdtemp(directory) == NULL)
        return EXIT_FAILURE;
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, blocks_keep_what_was_written);
    tcase_add_test(tcase, used_places_are_zeros_again);
    tcase_add_test(tcase, addresses_know_their_file);
    tcase_add_test(tcase, one_directory_is_one_file);
    tcase_add_test(tcase, files_are_counted_apart);
    tcase_add_test(tcase, released_pieces_are_not_resident);
    tcase_add_test(tcase, pages_of_a_range_are_released);
    tcase_add_test(tcase, pieces_follow_each_other);
    tcase_add_test(tcase, prefetch_reads);
    tcase_add_test(tcase, a_file_that_loses_its_name);
    tcase_add_test(tcase, the_directory_stays_empty);
    tcase_add_test(tcase, a_killed_process_leaves_nothing);
    tcase_add_test(tcase, freed_room_is_used_again);
    tcase_add_test(tcase, bad_directories);
    tcase_add_test(tcase, a_directory_that_may_not_be_written);
    tcase_add_test(tcase, a_full_disk_is_told_at_once);
    tcase_add_test(tcase, the_middle_of_a_block_is_not_freed);
    int result = serial_run(suite);
    return rmdir(directory) == 0 ? result : EXIT_FAILURE;
}
