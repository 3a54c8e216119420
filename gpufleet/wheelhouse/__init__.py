"""What is fetched or made on the controller before any box is touched: wheels, patches, sources."""
