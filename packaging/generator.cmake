# SPDX-License-Identifier: Apache-2.0
# CPack reads this file once for each kind of packages, with the settings of CMakeLists.txt. All packages of a run have
# the same package release, so there are two runs. `cpack` makes the packages of the roles.
# `cpack -D SHAREDGPU_FOR_SLURM=ON` makes the packages for one release of Slurm. Their package release contains Slurm's
# version, as in 1+slurm22.05.8.
if(SHAREDGPU_FOR_SLURM)
  set(CPACK_COMPONENTS_ALL ${CPACK_SHAREDGPU_RELEASE_PACKAGES})
  set(CPACK_DEBIAN_PACKAGE_RELEASE ${CPACK_DEBIAN_PACKAGE_RELEASE}+slurm${CPACK_SHAREDGPU_SLURM})
  set(CPACK_RPM_PACKAGE_RELEASE ${CPACK_RPM_PACKAGE_RELEASE}.slurm${CPACK_SHAREDGPU_SLURM})
else()
  set(CPACK_COMPONENTS_ALL ${CPACK_SHAREDGPU_PACKAGES})
endif()
