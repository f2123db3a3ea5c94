module penstock/clients/common

go 1.24
