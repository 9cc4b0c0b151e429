// SPDX-License-Identifier: Apache-2.0
// A host that ends in one of the ways that hosts end: exit_process ORDER [LIBMOEJIT]. The driver
// ends with it, in a handler that it registered when it was initialised; exit_test.cpp looks at
// what was called after that.
#include "runtime/bindings/c/moejit.h"
#include "runtime/driver/driver_api.h"
#include "tests/driver/driver_layer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <future>
#include <map>
#include <pthread.h>
#include <string>
#include <thread>

namespace moejit::testing {
namespace {

// What a host has: a layer that has run, its device and its engine.
struct Host {
  void open() {
    device = runtime::open_cuda_device().value();
    engine = runtime::Engine::create({.use_cache = false}).value();
    MappedControl nvrtc(std::getenv("FAKE_NVRTC_CONTROL"));  // NOLINT(concurrency-mt-unsafe)
    layer = DriverLayer::create(*engine, *device, *nvrtc, {}).value();
    if (!layer->run_all()) std::abort();
  }
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::Engine> engine;
  std::unique_ptr<DriverLayer> layer;
};

Host& kept() {
  static Host host;
  return host;
}
Host& leaked() {
  static Host& host = *new Host;
  return host;
}

// What a late call of any kind has to be: an error, and no call of the driver.
void expect_late_error(Host& host) {
  const auto launched = host.layer->forward();
  if (launched || launched.error().hint.find("the process is ending") == std::string::npos)
    std::_Exit(3);
  if (host.device->synchronize(nullptr) || host.device->allocate(64)) std::_Exit(4);
}

void destroys_everything() {
  Host host;
  host.open();
}

// Destroyed after the driver has ended.
void static_from_before_the_driver() { kept().open(); }

// Destroyed before the driver ends.
void static_from_after_the_driver() {
  if (!runtime::driver_api()) std::abort();
  kept().open();
}

void leaks_everything() { leaked().open(); }

void exits_from_another_thread() {
  kept().open();
  std::thread([] { std::exit(0); }).join();
}

void handler_uses_and_destroys() {
  leaked();
  std::atexit([] {
    expect_late_error(leaked());
    delete &leaked();
  });
  leaked().open();
}

void thread_launches_late() {
  static std::promise<void>& has_ended = *new std::promise<void>;
  static std::promise<void>& is_done = *new std::promise<void>;
  std::atexit([] {
    has_ended.set_value();
    is_done.get_future().wait();
  });
  leaked().open();
  std::thread([] {
    has_ended.get_future().wait();
    expect_late_error(leaked());
    is_done.set_value();
  }).detach();
}

void thread_local_of_main() {
  thread_local Host host;
  host.open();
}

void thread_local_of_a_thread() {
  std::thread([] {
    thread_local Host host;
    host.open();
  }).join();
}

void quick_exit() {
  kept().open();
  std::quick_exit(0);
}

// The library is closed while a graph's user object would call back into it, then the process ends.
void closes_the_library(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::abort();
  const auto open = reinterpret_cast<decltype(&::moejit_device_open_cuda)>(
      ::dlsym(library, "moejit_device_open_cuda"));
  moejit_device* device = nullptr;
  if (open(MOEJIT_CURRENT_GPU, &device) != MOEJIT_OK) std::abort();
  ::dlclose(library);
}

// Errors of a library whose text is gone with its thread: a code, and a sentence that says so.
struct LibraryErrors {
  decltype(&::moejit_status_check) check = nullptr;
  decltype(&::moejit_last_error) last = nullptr;

  void expect(uint32_t status, moejit_error_code code, std::size_t least_length) const {
    if (check(status) != code) std::_Exit(5);
    const moejit_error* const error = last();
    if (error->code != code || std::strlen(error->message) < least_length) std::_Exit(6);
  }
  void use() const {
    expect(MOEJIT_STATUS_BAD_SCALE, MOEJIT_ERROR_DEVICE_STATUS, 20);
    expect(0, MOEJIT_OK, 0);
    expect(MOEJIT_STATUS_BAD_SCALE, MOEJIT_ERROR_DEVICE_STATUS, 20);
  }
};
LibraryErrors& library_errors() {
  static LibraryErrors& errors = *new LibraryErrors;
  return errors;
}

void errors_of_the_library(const char* path) {
  leaked().open();
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::abort();
  library_errors().check =
      reinterpret_cast<decltype(&::moejit_status_check)>(::dlsym(library, "moejit_status_check"));
  library_errors().last =
      reinterpret_cast<decltype(&::moejit_last_error)>(::dlsym(library, "moejit_last_error"));
  std::atexit([] { library_errors().use(); });
  static const struct Static {
    ~Static() { library_errors().use(); }
  } destroyed_late;
  static pthread_key_t key;
  if (::pthread_key_create(&key, [](void*) { library_errors().use(); }) != 0) std::abort();
  std::thread([] {
    library_errors().use();
    ::pthread_setspecific(key, &key);
  }).join();
  library_errors().use();
}

// Orders that take the path of libmoejit.so.
const std::map<std::string, void (*)(const char*)> kLibraryOrders = {
    {"closes_the_library", closes_the_library}, {"errors_of_the_library", errors_of_the_library}};

using Order = void (*)();
const std::map<std::string, Order> kOrders = {
    {"destroys_everything", destroys_everything},
    {"static_from_before_the_driver", static_from_before_the_driver},
    {"static_from_after_the_driver", static_from_after_the_driver},
    {"leaks_everything", leaks_everything},
    {"exits_from_another_thread", exits_from_another_thread},
    {"handler_uses_and_destroys", handler_uses_and_destroys},
    {"thread_launches_late", thread_launches_late},
    {"thread_local_of_main", thread_local_of_main},
    {"thread_local_of_a_thread", thread_local_of_a_thread},
    {"quick_exit", quick_exit}};

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  using namespace moejit::testing;
  if (argc == 3) {
    const auto library_order = kLibraryOrders.find(argv[1]);
    if (library_order == kLibraryOrders.end()) return 2;
    library_order->second(argv[2]);
    return 0;
  }
  const auto order = argc == 2 ? kOrders.find(argv[1]) : kOrders.end();
  if (order == kOrders.end()) return 2;
  if (order->first.starts_with("static_from_before")) kept();
  order->second();
}
