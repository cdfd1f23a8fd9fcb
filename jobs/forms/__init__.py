"""The job form: four declarations on one page. `whole.JobForm` joins them."""
