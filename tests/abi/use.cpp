/* SPDX-License-Identifier: Apache-2.0 */
// use.cpp - inputs that a C++ program may only read go to the library as they are. Compiled, not run.
#include <vector>

#include "ringattn.h"

ra_status forward(ra_plan *plan, const std::vector<float> &q, const std::vector<float> &k,
                  const std::vector<float> &v, std::vector<float> &out)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(q.data());
    args.k = ra_const_tensor_packed(k.data());
    args.v = ra_const_tensor_packed(v.data());
    args.out = ra_tensor_packed(out.data());
    return ra_attend(plan, &args);
}

ra_status backward(ra_plan *plan, const ra_attend_args &forward, const std::vector<float> &lse,
                   const std::vector<float> &dout, std::vector<float> gradients[3])
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = forward.q;
    args.k = forward.k;
    args.v = forward.v;
    args.out = ra_tensor_read(forward.out);
    args.lse = lse.data();
    args.dout = ra_const_tensor_packed(dout.data());
    args.dq = ra_tensor_packed(gradients[0].data());
    args.dk = ra_tensor_packed(gradients[1].data());
    args.dv = ra_tensor_packed(gradients[2].data());
    return ra_gradient(plan, &args);
}

ra_status at_once(const std::vector<float> &x, std::vector<float> &out)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = static_cast<int64_t>(x.size()) / 64;
    problem.q_heads = 1;
    problem.dim = 64;
    return ra_attention(&problem, x.data(), x.data(), x.data(), out.data(), nullptr);
}
