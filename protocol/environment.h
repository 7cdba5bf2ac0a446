// SPDX-License-Identifier: Apache-2.0
// The names of the environment variables by which the parts tell each other what a program is to know.
#pragma once

namespace sharedgpu::environment {

// For the interposer, set by the SPANK plugin or `sharedgpu run`; users may set the first, and kDebug.
inline constexpr char kSocket[] = "SHAREDGPU_SOCKET";                   // of the arbiter
inline constexpr char kArbiterTimeout[] = "SHAREDGPU_ARBITER_TIMEOUT";  // milliseconds
inline constexpr char kOnNoArbiter[] = "SHAREDGPU_ON_NO_ARBITER";       // plain or fail
inline constexpr char kGpus[] = "SHAREDGPU_GPUS";                       // the numbers of the job's GPUs
inline constexpr char kDebug[] = "SHAREDGPU_DEBUG";                     // 1

// Of `sharedgpu run` alone: what shows the arbiter whose process it is, and the number of the run.
inline constexpr char kToken[] = "SHAREDGPU_TOKEN";
inline constexpr char kRun[] = "SHAREDGPU_RUN";

// The pipe of deadlines, see deadline_pipe.h: seconds; its end to write to; "FD:INODE" of the one to read.
inline constexpr char kDeadline[] = "SHAREDGPU_DEADLINE";
inline constexpr char kDeadlineFd[] = "SHAREDGPU_DEADLINE_FD";
inline constexpr char kDeadlineRead[] = "SHAREDGPU_DEADLINE_READ";

// From the GRES plugin: the step's units, and the device files that they stand for.
inline constexpr char kUnits[] = "SHAREDGPU_UNITS";
inline constexpr char kDevices[] = "SHAREDGPU_DEVICES";

// From qsub (etc/slurm-torque): what it has put into SBATCH_GRES.
inline constexpr char kQsubGres[] = "SHAREDGPU_QSUB_GRES";

}  // namespace sharedgpu::environment
