// The functions of UCX that are used. UCX is loaded when ranks of several machines first connect: a program that stays
// on one machine needs no UCX, and none of its code runs there. Thread-safe.
//
// UCX installs signal handlers when it is loaded; the application's are restored.
#pragma once

#include <ucp/api/ucp.h>

#include "src/base/dynamic_functions.h"
#include "src/base/status.h"

namespace axccl::ucx {

// clang-format off
#define AXCCL_UCX_FUNCTIONS(X)                                                                                  \
  X(ucp_am_recv_data_nbx) X(ucp_am_send_nbx) X(ucp_config_modify) X(ucp_config_read) X(ucp_config_release)      \
  X(ucp_context_query) X(ucp_ep_close_nbx) X(ucp_ep_create) X(ucp_get_version) X(ucp_get_version_string)        \
  X(ucp_init_version) X(ucp_mem_map) X(ucp_mem_unmap) X(ucp_request_free) X(ucp_worker_arm)                     \
  X(ucp_worker_create) X(ucp_worker_get_efd) X(ucp_worker_progress) X(ucp_worker_query)                         \
  X(ucp_worker_release_address) X(ucp_worker_set_am_recv_handler)
// clang-format on

struct Library {
  AXCCL_DYNAMIC_FUNCTIONS(AXCCL_UCX_FUNCTIONS)
  const char* (*ucs_status_string)(ucs_status_t) = nullptr;

  // Makes a kSystemError: `what` failed, and how.
  Status Error(ucs_status_t status, const char* what) const;
  // kInvalidUsage if UCX is not installed.
  static Result<const Library*> Get();
};

}  // namespace axccl::ucx
