#include "comm/network.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/file_descriptor.h"

namespace mantissa {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// `error` of getaddrinfo: 0 if all is well.
Addresses resolve(const std::string& host, int port, int socket_type, int& error) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

// A datagram socket connects without a packet, so the port does not matter.
constexpr int kAnyPort = 9;

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

std::string why_unresolved(const std::string& host) {
  int error = 0;
  resolve(host, kAnyPort, SOCK_DGRAM, error);
  return error == 0 ? "" : ::gai_strerror(error);
}

Way way_to(const std::string& host) {
  int error = 0;
  const Addresses addresses = resolve(host, kAnyPort, SOCK_DGRAM, error);
  std::string reason = error == 0 ? "it has no address" : ::gai_strerror(error);
  for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
    const FileDescriptor socket(::socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, to->ai_protocol));
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto* generic = reinterpret_cast<sockaddr*>(&from);
    if (socket.is_open() && ::connect(socket.get(), to->ai_addr, to->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), generic, &size) == 0) {
      return {numeric(generic, size), numeric(to->ai_addr, to->ai_addrlen)};
    }
    reason = std::strerror(errno);
  }
  throw CommError("no way leads from this machine to MASTER_ADDR = " + host + " (" + reason +
                  "); check the network, or name another address of rank 0's host");
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

namespace {

bool connects(const addrinfo& to, std::chrono::milliseconds limit) {
  const FileDescriptor socket(::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol));
  if (!socket.is_open()) return false;
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{socket.get(), POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  return ::poll(&ready, 1, static_cast<int>(limit.count())) == 1 &&
         ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

bool wait_for_listener(const std::string& host, int port, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetweenTries(50), kOneTry(2000);
  const auto deadline = Clock::now() + limit;
  int error = 0;
  const Addresses addresses = resolve(host, port, SOCK_STREAM, error);
  do {
    for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (connects(*to, std::clamp(left, std::chrono::milliseconds(1), kOneTry))) return true;
    }
    std::this_thread::sleep_for(kBetweenTries);
  } while (Clock::now() < deadline);
  return false;
}

std::vector<std::string> interfaces() {
  std::vector<std::string> names;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return names;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const bool has_address =
        at->ifa_addr != nullptr && (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
    if (has_address && (at->ifa_flags & IFF_UP) != 0) names.emplace_back(at->ifa_name);
  }
  ::freeifaddrs(list);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace mantissa
