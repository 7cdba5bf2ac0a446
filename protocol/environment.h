// SPDX-License-Identifier: Apache-2.0
// The environment variables by which the product's parts pass settings to the programs of a job and each
// other.
#pragma once

namespace sharedgpu::environment {

// For the interposer; set by the SPANK plugin or `sharedgpu run`. Users may set kSocket and kDebug.
inline constexpr char kSocket[] = "SHAREDGPU_SOCKET";                   // of the arbiter
inline constexpr char kArbiterTimeout[] = "SHAREDGPU_ARBITER_TIMEOUT";  // milliseconds
inline constexpr char kOnNoArbiter[] = "SHAREDGPU_ON_NO_ARBITER";       // plain or fail
inline constexpr char kGpus[] = "SHAREDGPU_GPUS";                       // the numbers of the job's GPUs
inline constexpr char kDebug[] = "SHAREDGPU_DEBUG";                     // 1

// For `sharedgpu run` only: the token that identifies a process of the run to the arbiter, and the run's
// number.
inline constexpr char kToken[] = "SHAREDGPU_TOKEN";
inline constexpr char kRun[] = "SHAREDGPU_RUN";
// 1 if a control group limits the run's host memory.
inline constexpr char kGroup[] = "SHAREDGPU_GROUP";

// The deadline pipe (deadline_pipe.h): the deadline in seconds, the write end, and "FD:INODE" of the read
// end.
inline constexpr char kDeadline[] = "SHAREDGPU_DEADLINE";
inline constexpr char kDeadlineFd[] = "SHAREDGPU_DEADLINE_FD";
inline constexpr char kDeadlineRead[] = "SHAREDGPU_DEADLINE_READ";

// From the GRES plugin: the step's units, the counts of their types ("a100:2,h100:1"), and the device files
// that the units stand for.
inline constexpr char kUnits[] = "SHAREDGPU_UNITS";
inline constexpr char kUnitTypes[] = "SHAREDGPU_UNIT_TYPES";
inline constexpr char kDevices[] = "SHAREDGPU_DEVICES";

// From Slurm: the options of the job, each under this and its name without "--sharedgpu-".
inline constexpr char kInheritedOption[] = "SLURM_SPANK__SLURM_SPANK_OPTION_sharedgpu_sharedgpu_";

// From qsub (etc/slurm-torque): the value that it put into SBATCH_GRES.
inline constexpr char kQsubGres[] = "SHAREDGPU_QSUB_GRES";

}  // namespace sharedgpu::environment
