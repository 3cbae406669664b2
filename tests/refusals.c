#include "refusals.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fsdp/status.h"
#include "mck.h"

static const refusal_t *all;

static void
end_alone(int code)
{
    _exit(code);
}

/* Runs `run` in a child with stderr going to `text`; its exit status. */
static int
run_in_child(void (*run)(void), char *text, size_t size)
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        fsdp_set_process(-1, end_alone);
        run();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], text + used, size - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(refusal)
{
    char text[2000];
    int status = run_in_child(all[_i].run, text, sizeof text);
    ck_assert_msg(status == FSDP_EXIT_FAULT, "case %d: exit status %d", _i,
                  status);
    ck_assert_msg(strstr(text, all[_i].message) != NULL,
                  "case %d: \"%s\" is not in: %s", _i, all[_i].message, text);
}
END_TEST

int
refusals_run(int argc, char **argv, const char *name, const refusal_t *cases,
             int count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create("refusals");
    all = cases;
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, refusal, 0, count);
    return mck_run(argc, argv, suite);
}
