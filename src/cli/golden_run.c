/* A recorded `fsdp train` on so many ranks, by the launcher of MPI. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/golden.h"

enum { MOST_WORDS = 200 };

/* Cuts `text` at `separator`; the pieces are parts of it. */
static int
cut(char *text, const char *separator, char **word, int n)
{
    char *state;
    for (char *w = strtok_r(text, separator, &state);
         w != NULL && n < MOST_WORDS; w = strtok_r(NULL, separator, &state))
        word[n++] = w;
    return n;
}

/* In the child: does not return.  What a launcher around us has said is not for
 * the one that is started now. */
_Noreturn static void
start(char **word, bool other_name)
{
    static const char *const variables[] = {
        "PMI_RANK", "PMI_SIZE",        "PMI_FD",         "PMI_PORT",
        "PMI_ID",   "MPI_LOCALNRANKS", "MPI_LOCALRANKID"};
    int nowhere = open("/dev/null", O_RDWR);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    execvp(word[0], word);
    word[0] = "mpiexec";
    if (other_name)
        execvp(word[0], word);
    _exit(127);
}

static fsdp_status_t
wait_for(pid_t child, const char *launcher, bool *told)
{
    int how = 0;
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    int code = child > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    if (code == 0)
        return FSDP_OK;
    if (child <= 0 || code == 127)
        return fsdp_error(FSDP_ERR_IO,
                          "cannot start %s; name the launcher of MPI in the "
                          "variable MPIEXEC",
                          launcher);
    *told = code > 0;
    return fsdp_error(code == 2 ? FSDP_ERR_USAGE : FSDP_ERR_FAULT,
                      "a run of the bundle was ended by signal %d",
                      WIFSIGNALED(how) ? WTERMSIG(how) : 0);
}

fsdp_status_t
golden_run(const golden_config_t *config, int ranks, const char *data,
           const char *folder, bool *told)
{
    char self[4096], number[16], *word[MOST_WORDS + 8];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *given = getenv("MPIEXEC");
    if (length < 0)
        return fsdp_error(FSDP_ERR_IO, "cannot find this program in /proc");
    self[length] = '\0';
    snprintf(number, sizeof number, "%d", ranks);
    char *launcher = fsdp_format(
        "%s", given != NULL && given[0] != '\0' ? given : "mpiexec.mpich");
    char *options = golden_options_text(config, ranks);
    char *from = fsdp_format("--data=%s", data);
    char *to = fsdp_format("--record=%s", folder);
    int n = cut(launcher, " ", word, 0);
    char *const fixed[] = {"-n", number, self, "train", from, to};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        word[n++] = fixed[i];
    n = cut(options, "\n", word, n);
    word[n] = NULL;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        start(word, given == NULL);
    fsdp_status_t status = wait_for(child, word[0], told);
    fsdp_free(launcher);
    fsdp_free(options);
    fsdp_free(from);
    fsdp_free(to);
    return status;
}
