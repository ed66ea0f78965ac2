// Stands before UCX's libucp, and loses a message when the test asks for that: its send ends with an error, and the
// endpoint stays sound, as if UCX could not register the memory. All else is of the real library, which this one is
// linked with.
#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <optional>
#include <utility>

#include "transports/ucx/greeting.h"

namespace {

struct Lost {
  ucp_send_nbx_callback_t sent;
  void* user;
};

// UCX is called by one thread at a time, with the lock of transports/ucx/worker.h.
Lost g_lost{};
bool g_ends = false;                 // the lost message's send is to end
std::optional<bool> g_lose_at_once;  // whether the next message's send fails at once; none: the message is not lost

template <class Function>
Function* Real(const char* name, Function*) {
  static void* const library = dlopen(AXCCL_UCP, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// To be called while no thread uses UCX.
EXPORTED void LoseNextMessage(bool at_once) { g_lose_at_once = at_once; }

EXPORTED ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_bytes,
                                          const void* data, size_t count, const ucp_request_param_t* param) {
  static const auto real = Real("ucp_am_send_nbx", ucp_am_send_nbx);
  if (id != axccl::ucx::kMessage || !g_lose_at_once.has_value())
    return real(ep, id, header, header_bytes, data, count, param);
  if (*std::exchange(g_lose_at_once, std::nullopt)) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
  g_lost = {param->cb.send, param->user_data};
  g_ends = true;
  return &g_lost;
}

EXPORTED unsigned ucp_worker_progress(ucp_worker_h worker) {
  static const auto real = Real("ucp_worker_progress", ucp_worker_progress);
  if (!std::exchange(g_ends, false)) return real(worker);
  g_lost.sent(&g_lost, UCS_ERR_NO_MEMORY, g_lost.user);
  return 1;
}

EXPORTED void ucp_request_free(void* request) {
  static const auto real = Real("ucp_request_free", ucp_request_free);
  if (request != &g_lost) real(request);
}
