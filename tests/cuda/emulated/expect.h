/* SPDX-License-Identifier: Apache-2.0 */
/* expect.h - what tests of the emulation share: launches, and what is expected of them. `failures`
 * counts what did not hold. */
#ifndef EMULATED_EXPECT_H
#define EMULATED_EXPECT_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_runtime.h"

static int failures;

#define EXPECT(CONDITION)                                                                          \
    do {                                                                                           \
        if (!(CONDITION)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #CONDITION);                        \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)
#define OK(CALL) EXPECT((CALL) == cudaSuccess)

/* A launch with 32 KB of shared memory, and one attribute or none. */
inline cudaLaunchConfig_t shape(unsigned blocks, unsigned threads, cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = 32768;
    config.attrs = attribute;
    config.numAttrs = attribute ? 1 : 0;
    return config;
}

/* Does this stop the program, as it must? */
template <typename Mistake> inline bool stops(const Mistake &mistake)
{
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        mistake();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* The same of a kernel. */
template <typename... Parameters, typename... Arguments>
inline bool stops(const cudaLaunchConfig_t &config, void (*kernel)(Parameters...),
                  const Arguments &...arguments)
{
    return stops([&] {
        (void)cudaLaunchKernelEx(&config, kernel, arguments...);
        (void)cudaDeviceSynchronize();
    });
}

#endif
