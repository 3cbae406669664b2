/* fsdp doctor: what is wrong here, and what to do about it. */

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/cli.h"
#include "tensor/kernels.h"

static int problems;

/* One line on the rank that speaks. */
static void
line(bool good, const char *what, const char *found, const char *remedy)
{
    problems += !good;
    if (!cli_speaks())
        return;
    printf("%-8s %-22s %s%s%s\n", good ? "ok" : "problem", what, found,
           good ? "" : ": ", good ? "" : remedy);
    fflush(stdout);
}

/* ---- the machine -------------------------------------------------------- */

static void
check_cores(void)
{
    char text[128];
    int cores = fsdp_cpu_count();
    int ranks = fsdp_comm_size(fsdp_comm_world());
    int threads = fsdp_get_num_threads();
    snprintf(text, sizeof text, "%d ranks x %d threads on %d cores%s", ranks,
             threads, cores,
             ranks > cores ? " (ranks take turns, that works)" : "");
    line(threads == 1 || ranks * threads <= cores, "ranks and cores", text,
         "use fewer --threads");
}

static void
check_system(void)
{
    struct utsname name;
    char text[256] = "unknown";
    if (uname(&name) == 0)
        snprintf(text, sizeof text, "%s %s %s", name.sysname, name.release,
                 name.machine);
    line(true, "system", text, "");
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    double gib = (double)pages * (double)bytes / (1 << 30);
    snprintf(text, sizeof text, "%.1f GiB", gib);
    line(gib >= 0.5, "memory", text, "small models only");
    line(true, "MPI", fsdp_comm_library_version(), "");
}

static void
check_host_name(void)
{
    char name[256] = "";
    struct addrinfo *found = NULL;
    gethostname(name, sizeof name - 1);
    double start = fsdp_clock_seconds();
    bool known = getaddrinfo(name, NULL, NULL, &found) == 0;
    double took = fsdp_clock_seconds() - start;
    char text[400];
    snprintf(text, sizeof text, "%s %s in %.2f s", name,
             known ? "resolves" : "does not resolve", took);
    if (found != NULL)
        freeaddrinfo(found);
    line(known && took < 2, "host name", text,
         "MPI may start slowly or hang; add the name to /etc/hosts");
}

static void
check_shared_memory(void)
{
    struct statvfs fs;
    char text[128];
    int ranks = fsdp_comm_size(fsdp_comm_world());
    if (statvfs("/dev/shm", &fs) != 0) {
        line(false, "/dev/shm", "is missing", "mount a tmpfs there");
        return;
    }
    double free_mib = (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20);
    snprintf(text, sizeof text, "%.0f MiB free", free_mib);
    line(free_mib >= 8.0 * ranks, "/dev/shm", text,
         "make it larger (docker run --shm-size=1g) or run fewer ranks");
}

static void
check_open_files(void)
{
    struct rlimit limit;
    char text[64];
    getrlimit(RLIMIT_NOFILE, &limit);
    snprintf(text, sizeof text, "%lu", (unsigned long)limit.rlim_cur);
    line(limit.rlim_cur >= 256, "open files allowed", text,
         "raise it with ulimit -n 1024");
}

/* ---- BLIS --------------------------------------------------------------- */

enum { M = 67, N = 130, K = 300 };

static void
fill(float *x, size_t n, uint64_t salt)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(fsdp_random_uniform(
                           fsdp_random_word(1, FSDP_RANDOM_TEST, 0, salt, i)) -
                       0.5);
}

/* Do a row's bits depend on the rows beside it, or on threads? */
static void
check_gemm_bits(void)
{
    const fsdp_kernels_t *k = fsdp_kernels(FSDP_FP32);
    float *a = fsdp_alloc(FSDP_MEM_OTHER, M * K * sizeof *a);
    float *b = fsdp_alloc(FSDP_MEM_OTHER, K * N * sizeof *b);
    float *all = fsdp_alloc(FSDP_MEM_OTHER, M * N * sizeof *all);
    float *part = fsdp_alloc(FSDP_MEM_OTHER, M * N * sizeof *part);
    int threads = fsdp_get_num_threads();
    fill(a, M * K, 1);
    fill(b, K * N, 2);
    k->gemm(false, false, M, N, K, 1, a, K, b, N, 0, all, N);
    for (size_t row = 0; row < M; row++)
        k->gemm(false, false, 1, N, K, 1, a + row * K, K, b, N, 0,
                part + row * N, N);
    bool rows = memcmp(all, part, M * N * sizeof *all) == 0;
    fsdp_set_num_threads(threads + 1);
    k->gemm(false, false, M, N, K, 1, a, K, b, N, 0, part, N);
    fsdp_set_num_threads(threads);
    bool same = memcmp(all, part, M * N * sizeof *all) == 0;
    line(rows, "BLIS, row by row", rows ? "the same bits" : "other bits",
         "this BLIS breaks the promise of equal bits; use another version");
    line(same, "BLIS, more threads", same ? "the same bits" : "other bits",
         "this BLIS breaks the promise of equal bits; use another version");
    fsdp_free(part);
    fsdp_free(all);
    fsdp_free(b);
    fsdp_free(a);
}

static void
check_gemm_speed(void)
{
    enum { SIZE = 384 };
    const fsdp_kernels_t *k = fsdp_kernels(FSDP_FP32);
    float *a = fsdp_alloc(FSDP_MEM_OTHER, SIZE * SIZE * sizeof *a);
    float *c = fsdp_alloc(FSDP_MEM_OTHER, SIZE * SIZE * sizeof *c);
    char text[64];
    double best = 1e9;
    fill(a, SIZE * SIZE, 3);
    for (int i = 0; i < 5; i++) {
        double start = fsdp_clock_seconds();
        k->gemm(false, false, SIZE, SIZE, SIZE, 1, a, SIZE, a, SIZE, 0, c,
                SIZE);
        double took = fsdp_clock_seconds() - start;
        best = took < best ? took : best;
    }
    double gflops = 2.0 * SIZE * SIZE * SIZE / best * 1e-9;
    snprintf(text, sizeof text, "%.1f GFLOP/s a rank", gflops);
    line(gflops > 1, "BLIS, speed", text,
         "is it the generic build? install libblis-openmp-dev");
    fsdp_free(c);
    fsdp_free(a);
}

/* ---- MPI ---------------------------------------------------------------- */

static void
check_collectives(void)
{
    enum { SMALL = 1, LARGE = 1 << 20, ROUNDS = 20 };
    fsdp_comm_t *world = fsdp_comm_world();
    size_t size = (size_t)fsdp_comm_size(world);
    size_t rank = (size_t)fsdp_comm_rank(world);
    uint8_t *in = fsdp_calloc(FSDP_MEM_OTHER, LARGE);
    uint8_t *out = fsdp_alloc(FSDP_MEM_OTHER, size * LARGE);
    char text[128];
    memset(in, (int)rank + 1, LARGE);
    double start = fsdp_clock_seconds();
    for (int i = 0; i < ROUNDS; i++)
        fsdp_all_gather(world, "doctor", FSDP_UINT8, in, out, SMALL);
    double small = (fsdp_clock_seconds() - start) / ROUNDS;
    start = fsdp_clock_seconds();
    fsdp_all_gather(world, "doctor", FSDP_UINT8, in, out, LARGE);
    double large = fsdp_clock_seconds() - start;
    bool right = true;
    for (size_t r = 0; r < size; r++)
        right &= out[r * LARGE] == (uint8_t)(r + 1) &&
                 out[r * LARGE + LARGE - 1] == (uint8_t)(r + 1);
    right = fsdp_comm_all_true(world, right);
    snprintf(text, sizeof text, "%.0f us for a byte, %.2f GB/s for a MiB",
             small * 1e6, (double)LARGE * (double)(size - 1) / large * 1e-9);
    line(right, "all-gather", right ? text : "wrong data",
         "MPI moves wrong data; check the installation");
    line(small < 0.05, "all-gather, latency", small < 0.05 ? "fine" : text,
         "ranks wait long for each other; run fewer of them");
    fsdp_free(out);
    fsdp_free(in);
}

fsdp_status_t
cli_doctor(const cli_options_t *options)
{
    cli_choose_threads(options->threads);
    check_system();
    check_cores();
    check_host_name();
    check_shared_memory();
    check_open_files();
    check_gemm_bits();
    check_gemm_speed();
    check_collectives();
    bool good = fsdp_comm_all_true(fsdp_comm_world(), problems == 0);
    if (cli_speaks())
        printf("%s\n",
               good ? "all well" : "something is wrong: see the lines above");
    return good ? FSDP_OK
                : fsdp_error(FSDP_ERR_FAULT, "fsdp doctor found a problem");
}
