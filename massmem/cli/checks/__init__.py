"""The checks of `massmem doctor`: functions that take a DoctorContext and return results."""
