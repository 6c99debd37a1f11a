// An exception that misbehave.c, which is C, cannot throw by itself.
#include <stdexcept>

extern "C" void throw_something() { throw std::runtime_error("thrown in a slot"); }
