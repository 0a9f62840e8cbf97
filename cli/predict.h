/* predict.h - how long a trial would take, from a short measurement of this machine. */
#ifndef CLI_PREDICT_H
#define CLI_PREDICT_H

#include "cli.h"
#include "forecast.h"
#include "trial.h"

struct prediction {
    double forward_gflops, backward_gflops; /* measured, over the threads the trial would use */
    double copy_bytes_per_second;           /* measured, one thread */
    double seconds;                         /* of the whole trial */
};

/* A second or less. The model: no faster than all work over the measured rate, than the busiest
 * rank alone, or than its bytes. */
int predict(const struct trial *trial, const struct forecast *forecast, struct prediction *out);

#endif
